// How the panels of formats with a decoder (quant_decode.h) are laid out. A weight's code is cut
// into its low 4 or 2 bits and its high 0, 1 or 2 bits, each in words of 4 bytes a row, byte j of a
// word holding elements k with k % 4 = j, so that one shift and one mask bring 4 consecutive k of 8
// rows under the 8-bit dot product:
//
//   every 8 blocks of 32 k, where the format has super-blocks: header: 16 halves d; then 16 dmin
//   each block:
//     scales   16 halves d, 16 m or the whole numbers of 16 rows, a byte each (below)
//     2 halves of the panel, each of 8 rows:
//       low 4 bits   4 words: word i holds k 4i+j in the low half of byte j, k 16+4i+j in the high
//       low 2 bits   2 words: word g holds k 16g+4i+j in bits 2i, 2i+1 of byte j
//       high 1 bit   1 word: k in bit k / 4 of byte j
//       high 2 bits  2 words, as the low 2 bits
//
// Plain numbers only: the AVX2 files include it (see avx2_kernels.h).
#pragma once

#include <cstddef>

namespace troupe::avx2 {

struct PanelLayout {
  size_t header = 0;
  size_t scales = 32;
  size_t low_bits = 4;
  size_t high_bits = 0;

  constexpr size_t half_bytes() const { return 32 * (low_bits + high_bits); }
  constexpr size_t block_bytes() const { return scales + 2 * half_bytes(); }
  constexpr size_t group_bytes() const { return header + 8 * block_bytes(); }
  // Offsets in a panel.
  constexpr size_t header_at(size_t b) const { return b / 8 * group_bytes(); }
  constexpr size_t block_at(size_t b) const {
    return header == 0 ? b * block_bytes() : header_at(b) + header + b % 8 * block_bytes();
  }
  // Formats with headers come in whole groups of 8.
  constexpr size_t panel_bytes(size_t blocks) const {
    return header == 0 ? blocks * block_bytes() : blocks / 8 * group_bytes();
  }
};

// Bytes a weight of the file takes here: Q5_0 22/22 a block and row, Q5_1 24/24, Q2_K 84/84,
// Q3_K 114/110, Q4_K 148/144, Q5_K 180/176, Q6_K 210/210, IQ4_NL 18/18, IQ4_XS 146/136, MXFP4
// 18/17.
inline constexpr PanelLayout kQ5_0Panel{.high_bits = 1};                // d
inline constexpr PanelLayout kQ5_1Panel{.scales = 64, .high_bits = 1};  // d, m
inline constexpr PanelLayout kQ2KPanel{.header = 64, .low_bits = 2};    // 2 x scale | minimum << 4
inline constexpr PanelLayout kQ3KPanel{.header = 32, .low_bits = 2, .high_bits = 1};  // 2 x scale
inline constexpr PanelLayout kQ4KPanel{.header = 64};                  // scale, minimum
inline constexpr PanelLayout kQ5KPanel{.header = 64, .high_bits = 1};  // scale, minimum
inline constexpr PanelLayout kQ6KPanel{.header = 32, .high_bits = 2};  // 2 x scale
inline constexpr PanelLayout kIq4NlPanel{};                            // d
inline constexpr PanelLayout kIq4XsPanel{.header = 32};                // scale, nothing
inline constexpr PanelLayout kMxfp4Panel{};                            // exponent, nothing

}  // namespace troupe::avx2

// Block-quantised weights, whatever their format, as 32 codes with what they stand for: the one
// reading of the formats' bits, by which the reference multiplies and the packers repack.
//
//   w[k] = q[k] · (d · scale[k / 16]) - dmin · minimum[k / 16]
//
// Scales and minimums are whole numbers, and 1 where a format has none. Products of d or dmin with
// them are exact in float (11 bits times at most 8), so their order means nothing.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace troupe {

// How often a format takes a minimum off: never, once a block of 32, once each 16 (Q2_K).
enum class Minimums : uint8_t { kNone, kOfBlock, kOfHalves };

struct DecodedBlock {
  uint8_t code[32] = {};  // the bits in the file
  int8_t q[32] = {};      // the whole number they stand for
  int8_t scale[2] = {1, 1};
  uint8_t minimum[2] = {0, 0};  // of a block of 32: both the same
  float d = 0;
  float dmin = 0;  // Q5_1: -m, with minimum 1
};

// Formats that are read this way: all block-quantised ones but Q8_0, Q4_0 and Q4_1, which are older
// than this file and simple enough to be multiplied as they lie.
bool has_decoder(DataType type);
Minimums minimums_of(DataType type);

// Block `b` of 32 of a row that begins at `row`. has_decoder(type).
DecodedBlock decode_block(DataType type, const std::byte* row, size_t b);

// Where the half precision numbers of a block of a quantised type lie (all such types; MXFP4 has
// none).
std::span<const size_t> factor_places(DataType type);

// What a code stands for in a format.
int8_t value_of_code(DataType type, uint8_t code);

// The 32 weights: float(q) · (d · scale), rounded, minus dmin · minimum, rounded; canonical NaN.
void dequantise(const DecodedBlock& block, Minimums minimums, float* y);

// 16 whole numbers a 4-bit code of the type stands for, or null (kIq4Nl, kIq4Xs, kMxfp4 have them).
const int8_t* code_table(DataType type);

}  // namespace troupe

// What the quantised micro-kernels share: the walk over slices and blocks, and the store. One call
// computes 16 output rows (a panel) times `kColumns` rows of x; sums stay in registers within a
// slice (N2).
#pragma once

#include "kernels/cpu/avx2_kernels.h"
#include "kernels/cpu/avx2_lanes.h"
#include "kernels/slices.h"

namespace troupe::avx2 {

// Lanes n0 to n0 + 15 of row r, cut at out.columns.
TROUPE_AVX2 void store_panel(const ProductRows& out, size_t r, size_t n0, F32x8 low, F32x8 high) {
  float* y = out.y + r * out.stride + n0;
  const size_t left = out.columns - n0;
  low = canonical(low);
  high = canonical(high);
  if (left >= kPanelRows) {
    store(y, low);
    store(y + 8, high);
  } else if (left > 8) {
    store(y, low);
    store_first(y + 8, high, left - 8);
  } else if (left == 8) {
    store(y, low);
  } else {
    store_first(y, low, left);
  }
}

// Format: a type with kBlockBytes and block<kColumns>(panel block, x, row, block index, F32x8
// acc[2][kColumns]).
template <class Format, size_t kColumns>
[[gnu::always_inline]] inline void quantised_tile(const std::byte* panel, size_t n0,
                                                  const QuantisedRows& x, size_t row,
                                                  const ProductRows& out) {
  F32x8 sums[2][kColumns][kSlices];
  const std::byte* at = panel;
  for (size_t s = 0; s < kSlices; ++s) {
    F32x8 acc[2][kColumns];
    for (size_t c = 0; c < kColumns; ++c) acc[0][c] = acc[1][c] = F32x8::zero();
    const size_t end = slice_begin(s + 1, x.blocks);
    for (size_t b = slice_begin(s, x.blocks); b < end; ++b, at += Format::kBlockBytes)
      Format::template block<kColumns>(at, x, row, b, acc);
    for (size_t c = 0; c < kColumns; ++c) {
      sums[0][c][s] = acc[0][c];
      sums[1][c][s] = acc[1][c];
    }
  }
  for (size_t c = 0; c < kColumns; ++c)
    store_panel(out, row + c, n0, combine_slices(sums[0][c]), combine_slices(sums[1][c]));
}

template <class Format>
[[gnu::always_inline]] inline void quantised_panels(const std::byte* panels, size_t first,
                                                    size_t last, const QuantisedRows& x,
                                                    const ProductRows& out) {
  for (size_t p = first; p < last; ++p) {
    const std::byte* panel = panels + p * x.blocks * Format::kBlockBytes;
    const size_t n0 = p * kPanelRows;
    size_t r = 0;
    for (; r + 4 <= out.rows; r += 4) quantised_tile<Format, 4>(panel, n0, x, r, out);
    switch (out.rows - r) {
      case 3:
        quantised_tile<Format, 3>(panel, n0, x, r, out);
        break;
      case 2:
        quantised_tile<Format, 2>(panel, n0, x, r, out);
        break;
      case 1:
        quantised_tile<Format, 1>(panel, n0, x, r, out);
        break;
      default:
        break;
    }
  }
}

}  // namespace troupe::avx2

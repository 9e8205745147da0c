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

// Cuts rows of x into tiles of at most `size_max` that are as even as can be: a tile of one or two
// rows at the end would leave the arithmetic units waiting for results.
struct TileSplit {
  size_t row = 0;
  size_t size = 0;  // 0: no more tiles
  size_t rows;
  size_t tiles;

  [[gnu::always_inline]] TileSplit(size_t rows_all, size_t size_max)
      : rows(rows_all), tiles((rows_all + size_max - 1) / size_max) {
    size = tiles == 0 ? 0 : (rows + tiles - 1) / tiles;
  }
  [[gnu::always_inline]] bool last() const { return tiles == 1; }
  [[gnu::always_inline]] void next() {
    row += size;
    --tiles;
    size = tiles == 0 ? 0 : (rows - row + tiles - 1) / tiles;
  }
};

// How far ahead of the arithmetic a weight that is read once is fetched. Without it one to four
// rows waited for memory: 4 rows of SmolLM2 decode at 336 tokens/s with it, 251 without, one row at
// 157 and 88 (one thread of a Sapphire Rapids virtual machine, `bench_model`, medians side by side;
// 1024, 2048 and 8192 bytes were slower).
inline constexpr size_t kFetchDistance = 4096;

TROUPE_AVX2 void fetch_ahead(const std::byte* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(p + i, _MM_HINT_T0);
}

// Panels that are nothing but blocks, one after another.
template <size_t kBytes>
struct FlatPanel {
  static constexpr size_t kBlockBytes = kBytes;
  static constexpr size_t block_at(size_t b) { return b * kBytes; }
  static constexpr size_t panel_bytes(size_t blocks) { return blocks * kBytes; }
};

// Format: a type with kBlockBytes, block_at(b) and panel_bytes(blocks), offsets as in FlatPanel,
// and block<kColumns>(panel, x, row, block index, F32x8 acc[2][kColumns]).
// `ahead`: what to fetch meanwhile, as much as the panel is long, or null. A panel that several
// tiles read is in L1 after the first, and the hardware's prefetcher stops there: without this 8
// rows ran at 80 GMAC/s where 4 rows ran at 100. So the last tile fetches the next panel.
template <class Format, size_t kColumns>
[[gnu::always_inline]] inline void quantised_tile(const std::byte* panel, const std::byte* ahead,
                                                  size_t n0, const QuantisedRows& x, size_t row,
                                                  const ProductRows& out) {
  F32x8 sums[2][kColumns][kSlices];
  for (size_t s = 0; s < kSlices; ++s) {
    F32x8 acc[2][kColumns];
    for (size_t c = 0; c < kColumns; ++c) acc[0][c] = acc[1][c] = F32x8::zero();
    const size_t end = slice_begin(s + 1, x.blocks);
    for (size_t b = slice_begin(s, x.blocks); b < end; ++b) {
      if (ahead != nullptr) fetch_ahead(ahead + Format::block_at(b), Format::kBlockBytes);
      Format::template block<kColumns>(panel, x, row, b, acc);
    }
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
    const std::byte* panel = panels + p * Format::panel_bytes(x.blocks);
    const size_t n0 = p * kPanelRows;
    for (TileSplit tile(out.rows, 4); tile.size > 0; tile.next()) {
      const std::byte* ahead = nullptr;
      if (tile.last() && p + 1 < last)
        ahead = panel + (tile.row > 0 ? Format::panel_bytes(x.blocks) : kFetchDistance);
      switch (tile.size) {
        case 4:
          quantised_tile<Format, 4>(panel, ahead, n0, x, tile.row, out);
          break;
        case 3:
          quantised_tile<Format, 3>(panel, ahead, n0, x, tile.row, out);
          break;
        case 2:
          quantised_tile<Format, 2>(panel, ahead, n0, x, tile.row, out);
          break;
        default:
          quantised_tile<Format, 1>(panel, ahead, n0, x, tile.row, out);
          break;
      }
    }
  }
}

}  // namespace troupe::avx2

// F32, F16 and BF16 weights: lanes are output rows, one fma a k. A tile is kPanels panels of 16
// rows times kColumns rows of x: 6 columns fill the registers with 12 sums; a single row takes 4
// panels at once, so that 8 sums hide the latency of fma.
#include "kernels/cpu/avx2_panel.h"

namespace troupe::avx2 {

namespace {

template <class Element, size_t kPanels, size_t kColumns>
TROUPE_AVX2 void sum_range(const Element* w, size_t panel_stride, const float* x, size_t row_stride,
                           size_t k_begin, size_t k_end, F32x8 (&acc)[kPanels][kColumns][2]) {
  for (size_t p = 0; p < kPanels; ++p)
    for (size_t c = 0; c < kColumns; ++c) acc[p][c][0] = acc[p][c][1] = F32x8::zero();
  for (size_t k = k_begin; k < k_end; ++k)
    for (size_t p = 0; p < kPanels; ++p) {
      const Element* at = w + p * panel_stride + k * kPanelRows;
      const F32x8 low = F32x8::load(at), high = F32x8::load(at + 8);
      for (size_t c = 0; c < kColumns; ++c) {
        const F32x8 value = F32x8::set(x[c * row_stride + k]);
        acc[p][c][0] = fma(low, value, acc[p][c][0]);
        acc[p][c][1] = fma(high, value, acc[p][c][1]);
      }
    }
}

template <class Element, size_t kPanels, size_t kColumns>
TROUPE_AVX2 void float_tile(const Element* w, const Element* ahead, size_t n0, const float* x,
                            size_t k, size_t row, const ProductRows& out) {
  F32x8 sums[kPanels][kColumns][2][kSlices];
  const size_t blocks = slice_blocks(k);
  for (size_t s = 0; s < kSlices; ++s) {
    const size_t begin = slice_begin(s, blocks) * kSliceBlock;
    const size_t end = slice_begin(s + 1, blocks) * kSliceBlock;
    // A slice's worth at a time: the loop itself has no room for more instructions.
    if (ahead != nullptr)
      fetch_ahead(reinterpret_cast<const std::byte*>(ahead + begin * kPanelRows),
                  (end - begin) * kPanelRows * sizeof(Element));
    F32x8 acc[kPanels][kColumns][2];
    sum_range<Element>(w, kPanelRows * k, x + row * k, k, begin, end < k ? end : k, acc);
    for (size_t p = 0; p < kPanels; ++p)
      for (size_t c = 0; c < kColumns; ++c) {
        sums[p][c][0][s] = acc[p][c][0];
        sums[p][c][1][s] = acc[p][c][1];
      }
  }
  for (size_t p = 0; p < kPanels; ++p)
    for (size_t c = 0; c < kColumns; ++c)
      store_panel(out, row + c, n0 + p * kPanelRows, combine_slices(sums[p][c][0]),
                  combine_slices(sums[p][c][1]));
}

template <class Element>
TROUPE_AVX2 void float_panels(const Element* panels, size_t first, size_t last, const float* x,
                              size_t k, const ProductRows& out) {
  size_t p = first;
  if (out.rows == 1)
    for (; p + 4 <= last; p += 4)
      float_tile<Element, 4, 1>(panels + p * kPanelRows * k, nullptr, p * kPanelRows, x, k, 0, out);
  for (; p < last; ++p) {
    const Element* w = panels + p * kPanelRows * k;
    const size_t n0 = p * kPanelRows;
    for (TileSplit tile(out.rows, 6); tile.size > 0; tile.next()) {
      const Element* ahead =
          tile.last() && tile.row > 0 && p + 1 < last ? w + kPanelRows * k : nullptr;
      switch (tile.size) {
        case 6:
          float_tile<Element, 1, 6>(w, ahead, n0, x, k, tile.row, out);
          break;
        case 5:
          float_tile<Element, 1, 5>(w, ahead, n0, x, k, tile.row, out);
          break;
        case 4:
          float_tile<Element, 1, 4>(w, ahead, n0, x, k, tile.row, out);
          break;
        case 3:
          float_tile<Element, 1, 3>(w, ahead, n0, x, k, tile.row, out);
          break;
        case 2:
          float_tile<Element, 1, 2>(w, ahead, n0, x, k, tile.row, out);
          break;
        default:
          float_tile<Element, 1, 1>(w, ahead, n0, x, k, tile.row, out);
          break;
      }
    }
  }
}

}  // namespace

void matmul_f32(const std::byte* panels, size_t first, size_t last, const float* x, size_t k,
                const ProductRows& out) {
  float_panels(reinterpret_cast<const float*>(panels), first, last, x, k, out);
}

void matmul_f16(const std::byte* panels, size_t first, size_t last, const float* x, size_t k,
                const ProductRows& out) {
  float_panels(reinterpret_cast<const uint16_t*>(panels), first, last, x, k, out);
}

void matmul_bf16(const std::byte* panels, size_t first, size_t last, const float* x, size_t k,
                 const ProductRows& out) {
  float_panels(reinterpret_cast<const Bf16*>(panels), first, last, x, k, out);
}

}  // namespace troupe::avx2

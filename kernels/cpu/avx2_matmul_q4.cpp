// 4-bit weights against 8-bit activations. The nibbles stay unsigned, so that one maddubs and one
// 16-bit add do 32 products: a pair sum is at most 15 · 127 · 2 = 3810, and the eight of a block
// add up to at most 30480, which fits 16 bits; one widening a block makes exact 32-bit sums. The
// zero point is folded into Σx of the block.
#include "kernels/cpu/avx2_panel.h"

namespace troupe::avx2 {

namespace {

TROUPE_AVX2 F32x8 to_float(__m256i sum) {
  return {_mm256_cvtepi32_ps(sum)};
}

template <bool kMinimum>
struct Q4 : FlatPanel<(kMinimum ? 64 : 32) + 256> {
  static constexpr size_t kScaleBytes = kMinimum ? 64 : 32;

  template <size_t kColumns>
  TROUPE_AVX2 void products(const std::byte* quads, const int8_t* x, size_t row_bytes,
                            __m256i (&pairs)[2][kColumns]) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (size_t c = 0; c < kColumns; ++c) pairs[0][c] = pairs[1][c] = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; ++i) {
      const __m256i both0 = load_bytes(quads + 32 * i), both1 = load_bytes(quads + 128 + 32 * i);
      const __m256i low0 = _mm256_and_si256(both0, mask), low1 = _mm256_and_si256(both1, mask);
      const __m256i high0 = _mm256_and_si256(_mm256_srli_epi16(both0, 4), mask);
      const __m256i high1 = _mm256_and_si256(_mm256_srli_epi16(both1, 4), mask);
      for (size_t c = 0; c < kColumns; ++c) {
        const __m256i x_low = broadcast_quad(x + c * row_bytes + 4 * i);
        const __m256i x_high = broadcast_quad(x + c * row_bytes + 16 + 4 * i);
        pairs[0][c] = _mm256_add_epi16(pairs[0][c], _mm256_maddubs_epi16(low0, x_low));
        pairs[1][c] = _mm256_add_epi16(pairs[1][c], _mm256_maddubs_epi16(low1, x_low));
        pairs[0][c] = _mm256_add_epi16(pairs[0][c], _mm256_maddubs_epi16(high0, x_high));
        pairs[1][c] = _mm256_add_epi16(pairs[1][c], _mm256_maddubs_epi16(high1, x_high));
      }
    }
  }

  template <size_t kColumns>
  TROUPE_AVX2 void block(const std::byte* panel, const QuantisedRows& x, size_t row, size_t b,
                         F32x8 (&acc)[2][kColumns]) {
    const std::byte* w = panel + Q4::block_at(b);
    __m256i pairs[2][kColumns];
    products(w + kScaleBytes, x.q + (row * x.blocks + b) * 32, x.blocks * 32, pairs);
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t half = 0; half < 2; ++half) {
      const F32x8 scale = load_halves(w + 16 * half);
      for (size_t c = 0; c < kColumns; ++c) {
        const size_t at = (row + c) * x.blocks + b;
        __m256i sum = _mm256_madd_epi16(pairs[half][c], ones);
        if constexpr (!kMinimum) sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(8 * x.sum[at]));
        acc[half][c] = fma(to_float(sum), scale * F32x8::set(x.d[at]), acc[half][c]);
        if constexpr (kMinimum)
          acc[half][c] =
              fma(load_halves(w + 32 + 16 * half), F32x8::set(x.d_sum[at]), acc[half][c]);
      }
    }
  }
};

static_assert(Q4<false>::kBlockBytes == kQ4_0PanelBlock);
static_assert(Q4<true>::kBlockBytes == kQ4_1PanelBlock);

}  // namespace

void matmul_q4_0(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Q4<false>>(panels, first, last, x, out);
}

void matmul_q4_1(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Q4<true>>(panels, first, last, x, out);
}

}  // namespace troupe::avx2

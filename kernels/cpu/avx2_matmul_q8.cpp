// 8-bit weights against 8-bit activations. maddubs wants one unsigned side: |w|, with w's sign
// moved to x. A pair sum is at most 128 · 127 · 2 = 32512, which just fits 16 bits, so each must be
// widened before it is added.
#include "kernels/cpu/avx2_panel.h"

namespace troupe::avx2 {

namespace {

struct Q8 : FlatPanel<kQ8_0PanelBlock> {
  template <size_t kColumns>
  TROUPE_AVX2 void products(const std::byte* quads, const int8_t* x, size_t row_bytes,
                            __m256i (&sums)[2][kColumns]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t c = 0; c < kColumns; ++c) sums[0][c] = sums[1][c] = _mm256_setzero_si256();
    for (size_t i = 0; i < 8; ++i) {
      const __m256i w0 = load_bytes(quads + 32 * i), w1 = load_bytes(quads + 256 + 32 * i);
      const __m256i size0 = _mm256_abs_epi8(w0), size1 = _mm256_abs_epi8(w1);
      for (size_t c = 0; c < kColumns; ++c) {
        const __m256i quad = broadcast_quad(x + c * row_bytes + 4 * i);
        const __m256i pair0 = _mm256_maddubs_epi16(size0, _mm256_sign_epi8(quad, w0));
        const __m256i pair1 = _mm256_maddubs_epi16(size1, _mm256_sign_epi8(quad, w1));
        sums[0][c] = _mm256_add_epi32(sums[0][c], _mm256_madd_epi16(pair0, ones));
        sums[1][c] = _mm256_add_epi32(sums[1][c], _mm256_madd_epi16(pair1, ones));
      }
    }
  }

  template <size_t kColumns>
  TROUPE_AVX2 void block(const std::byte* panel, const QuantisedRows& x, size_t row, size_t b,
                         F32x8 (&acc)[2][kColumns]) {
    const std::byte* w = panel + block_at(b);
    __m256i sums[2][kColumns];
    products(w + 32, x.q + (row * x.blocks + b) * 32, x.blocks * 32, sums);
    for (size_t half = 0; half < 2; ++half) {
      const F32x8 scale = load_halves(w + 16 * half);
      for (size_t c = 0; c < kColumns; ++c) {
        const F32x8 d = F32x8::set(x.d[(row + c) * x.blocks + b]);
        const F32x8 sum{_mm256_cvtepi32_ps(sums[half][c])};
        acc[half][c] = fma(sum, scale * d, acc[half][c]);
      }
    }
  }
};

}  // namespace

void matmul_q8_0(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Q8>(panels, first, last, x, out);
}

}  // namespace troupe::avx2

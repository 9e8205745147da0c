// Formats with a decoder against 8-bit activations: their panels (panel_layout.h) are unpacked into
// codes of 8 bits, 4 consecutive k of 8 rows at a time, and multiplied as in avx2_matmul_q4.cpp
// (codes without a sign) or avx2_matmul_q8.cpp (codes with one). Whole-number scales cost nothing:
// the instruction that widens sums of 16 bits to 32 multiplies by them.
//
// One half of the panel after the other, unlike there: it halves the registers that sums take, and
// the second read of x comes from L1.
#include "kernels/cpu/avx2_panel.h"
#include "kernels/cpu/panel_layout.h"

namespace troupe::avx2 {

namespace {

TROUPE_AVX2 __m256i moved(__m256i bits, int by) {
  return by >= 0 ? _mm256_slli_epi16(bits, by) : _mm256_srli_epi16(bits, -by);
}

// The codes of k = 16g + 4i to 16g + 4i + 3 of 8 rows; `half` is the panel's half of a block.
template <PanelLayout kLayout>
TROUPE_AVX2 __m256i codes(const std::byte* half, int g, int i) {
  __m256i code;
  if constexpr (kLayout.low_bits == 4)
    code = _mm256_and_si256(moved(load_bytes(half + 32 * i), -4 * g), _mm256_set1_epi8(15));
  else
    code = _mm256_and_si256(moved(load_bytes(half + 32 * g), -2 * i), _mm256_set1_epi8(3));
  constexpr int kLow = static_cast<int>(kLayout.low_bits);
  const std::byte* high = half + 32 * kLow;
  if constexpr (kLayout.high_bits == 1) {
    const __m256i bit = moved(load_bytes(high), kLow - (4 * g + i));
    code = _mm256_or_si256(code, _mm256_and_si256(bit, _mm256_set1_epi8(1 << kLow)));
  }
  if constexpr (kLayout.high_bits == 2) {
    const __m256i bits = moved(load_bytes(high + 32 * g), kLow - 2 * i);
    code = _mm256_or_si256(code, _mm256_and_si256(bits, _mm256_set1_epi8(3 << kLow)));
  }
  return code;
}

// 8 bytes as 32-bit lanes, with or without a sign.
TROUPE_AVX2 __m256i signed_bytes(const std::byte* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
TROUPE_AVX2 __m256i unsigned_bytes(const std::byte* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
// A small number in both 16-bit halves of its lane, for madd.
TROUPE_AVX2 __m256i in_both_halves(__m256i n) {
  return _mm256_or_si256(_mm256_and_si256(n, _mm256_set1_epi32(0xFFFF)), _mm256_slli_epi32(n, 16));
}
TROUPE_AVX2 F32x8 to_float(__m256i n) {
  return {_mm256_cvtepi32_ps(n)};
}
// -(dmin · minimum), which the sum of activations is multiplied with.
TROUPE_AVX2 F32x8 taken_off(F32x8 dmin, __m256i minimum) {
  return {_mm256_xor_ps((dmin * to_float(minimum)).v, _mm256_set1_ps(-0.0F))};
}

// What formats differ in. `w` is a block, `header` that of its group, `half` 0 or 1.
//   kTogether  results of maddubs that are added in 16 bits before they are widened: 8 or 4 where
//              these sums fit (8 · 2 · 127 · 15, 4 · 2 · 127 · 32), else 1
template <PanelLayout kOf>
struct Plain {
  static constexpr PanelLayout kLayout = kOf;
  static constexpr size_t kBlockBytes = kOf.block_bytes();
  static constexpr bool kSigned = false;
  static constexpr int kTogether = 4;
  static constexpr int kZero = 0;      // taken off every code, by way of the sum of activations
  static constexpr int kMinimums = 0;  // a block of 32

  static constexpr size_t block_at(size_t b) { return kOf.block_at(b); }
  static constexpr size_t panel_bytes(size_t blocks) { return kOf.panel_bytes(blocks); }
  TROUPE_AVX2 __m256i code(const std::byte* half, int g, int i) { return codes<kOf>(half, g, i); }
  TROUPE_AVX2 __m256i scale(const std::byte*, int, int) { return _mm256_set1_epi16(1); }
  TROUPE_AVX2 F32x8 d(const std::byte*, const std::byte* w, int half) {
    return load_halves(w + 16 * half);
  }
  TROUPE_AVX2 F32x8 addend(const std::byte*, const std::byte*, int, int) { return F32x8::zero(); }
};

// d comes from the header; one whole-number scale a block.
template <PanelLayout kOf>
struct Super : Plain<kOf> {
  TROUPE_AVX2 __m256i scale(const std::byte* w, int half, int) {
    return in_both_halves(signed_bytes(w + 8 * half));
  }
  TROUPE_AVX2 F32x8 d(const std::byte* header, const std::byte*, int half) {
    return load_halves(header + 16 * half);
  }
};

struct Q5_0 : Plain<kQ5_0Panel> {
  static constexpr int kZero = 16;
};

struct Q5_1 : Plain<kQ5_1Panel> {
  static constexpr int kMinimums = 1;
  TROUPE_AVX2 F32x8 addend(const std::byte*, const std::byte* w, int half, int) {
    return load_halves(w + 32 + 16 * half);
  }
};

template <PanelLayout kOf>
struct WithMinimum : Super<kOf> {
  static constexpr int kMinimums = 1;
  TROUPE_AVX2 F32x8 addend(const std::byte* header, const std::byte* w, int half, int) {
    return taken_off(load_halves(header + 32 + 16 * half), unsigned_bytes(w + 16 + 8 * half));
  }
};
struct Q4K : WithMinimum<kQ4KPanel> {
  static constexpr int kTogether = 8;
};
struct Q5K : WithMinimum<kQ5KPanel> {};

// A scale each 16, codes around `kMiddle`.
template <PanelLayout kOf, int kMiddle>
struct Sixteens : Super<kOf> {
  static constexpr bool kSigned = true;
  TROUPE_AVX2 __m256i code(const std::byte* half, int g, int i) {
    return _mm256_sub_epi8(codes<kOf>(half, g, i), _mm256_set1_epi8(kMiddle));
  }
  TROUPE_AVX2 __m256i scale(const std::byte* w, int half, int g) {
    return in_both_halves(signed_bytes(w + 16 * g + 8 * half));
  }
};
using Q6K = Sixteens<kQ6KPanel, 32>;
using Q3K = Sixteens<kQ3KPanel, 4>;

struct Q2K : Super<kQ2KPanel> {
  static constexpr int kMinimums = 2;
  TROUPE_AVX2 __m256i scale(const std::byte* w, int half, int g) {
    const __m256i both = unsigned_bytes(w + 16 * g + 8 * half);
    return in_both_halves(_mm256_and_si256(both, _mm256_set1_epi32(15)));
  }
  TROUPE_AVX2 F32x8 addend(const std::byte* header, const std::byte* w, int half, int g) {
    const __m256i both = unsigned_bytes(w + 16 * g + 8 * half);
    return taken_off(load_halves(header + 32 + 16 * half), _mm256_srli_epi32(both, 4));
  }
};

TROUPE_AVX2 __m256i looked_up(__m128i table, __m256i code) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), code);
}

template <class Base>
struct NonLinear : Base {
  static constexpr bool kSigned = true;
  static constexpr int kTogether = 1;
  TROUPE_AVX2 __m256i code(const std::byte* half, int g, int i) {
    const __m128i table =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return looked_up(table, codes<Base::kLayout>(half, g, i));
  }
};
using Iq4Nl = NonLinear<Plain<kIq4NlPanel>>;
using Iq4Xs = NonLinear<Super<kIq4XsPanel>>;

struct Mxfp4 : Plain<kMxfp4Panel> {
  static constexpr bool kSigned = true;
  static constexpr int kTogether = 8;  // 8 · 2 · 127 · 12
  TROUPE_AVX2 __m256i code(const std::byte* half, int g, int i) {
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return looked_up(table, codes<kMxfp4Panel>(half, g, i));
  }
  // 2^(e - 128): e - 1 as a float's exponent; the two smallest are subnormal.
  TROUPE_AVX2 F32x8 d(const std::byte*, const std::byte* w, int half) {
    const __m256i e = unsigned_bytes(w + 8 * half);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    const __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return {_mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, is_tiny))};
  }
};

template <class Type>
struct Decoded : Type {
  // The exact sums of one half of a block: scale · Σ code · x.
  template <size_t kColumns>
  TROUPE_AVX2 void products(const std::byte* w, int half, const int8_t* x, size_t row_bytes,
                            __m256i (&sums)[kColumns]) {
    const std::byte* bits =
        w + Type::kLayout.scales + static_cast<size_t>(half) * Type::kLayout.half_bytes();
    __m256i pairs[kColumns];
    for (size_t c = 0; c < kColumns; ++c) pairs[c] = sums[c] = _mm256_setzero_si256();
    for (int g = 0; g < 2; ++g) {
      const __m256i scale = Type::scale(w, half, g);
      for (int i = 0; i < 4; ++i) {
        const __m256i code = Type::code(bits, g, i);
        const __m256i size = Type::kSigned ? _mm256_abs_epi8(code) : code;
        const bool widen = Type::kTogether == 1 || (i == 3 && (g == 1 || Type::kTogether == 4));
        for (size_t c = 0; c < kColumns; ++c) {
          __m256i quad = broadcast_quad(x + c * row_bytes + 16 * g + 4 * i);
          if constexpr (Type::kSigned) quad = _mm256_sign_epi8(quad, code);
          pairs[c] = _mm256_add_epi16(pairs[c], _mm256_maddubs_epi16(size, quad));
          if (!widen) continue;
          sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs[c], scale));
          pairs[c] = _mm256_setzero_si256();
        }
      }
    }
  }

  template <size_t kColumns>
  TROUPE_AVX2 void block(const std::byte* panel, const QuantisedRows& x, size_t row, size_t b,
                         F32x8 (&acc)[2][kColumns]) {
    const std::byte* header = panel + Type::kLayout.header_at(b);
    const std::byte* w = panel + Type::block_at(b);
    for (int half = 0; half < 2; ++half) {
      __m256i sums[kColumns];
      products(w, half, x.q + (row * x.blocks + b) * 32, x.blocks * 32, sums);
      const F32x8 d = Type::d(header, w, half);
      for (size_t c = 0; c < kColumns; ++c) {
        const size_t at = (row + c) * x.blocks + b;
        F32x8& total = acc[half][c];
        if constexpr (Type::kZero != 0)
          sums[c] = _mm256_sub_epi32(sums[c], _mm256_set1_epi32(Type::kZero * x.sum[at]));
        total = fma(to_float(sums[c]), d * F32x8::set(x.d[at]), total);
        if constexpr (Type::kMinimums == 1)
          total = fma(Type::addend(header, w, half, 0), F32x8::set(x.d_sum[at]), total);
        if constexpr (Type::kMinimums == 2)
          for (int g = 0; g < 2; ++g)
            total = fma(Type::addend(header, w, half, g),
                        F32x8::set(x.d_half_sums[2 * at + static_cast<size_t>(g)]), total);
      }
    }
  }
};

}  // namespace

void matmul_q5_0(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q5_0>>(panels, first, last, x, out);
}
void matmul_q5_1(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q5_1>>(panels, first, last, x, out);
}
void matmul_q2_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q2K>>(panels, first, last, x, out);
}
void matmul_q3_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q3K>>(panels, first, last, x, out);
}
void matmul_q4_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q4K>>(panels, first, last, x, out);
}
void matmul_q5_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q5K>>(panels, first, last, x, out);
}
void matmul_q6_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out) {
  quantised_panels<Decoded<Q6K>>(panels, first, last, x, out);
}
void matmul_iq4_nl(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                   const ProductRows& out) {
  quantised_panels<Decoded<Iq4Nl>>(panels, first, last, x, out);
}
void matmul_iq4_xs(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                   const ProductRows& out) {
  quantised_panels<Decoded<Iq4Xs>>(panels, first, last, x, out);
}
void matmul_mxfp4(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                  const ProductRows& out) {
  quantised_panels<Decoded<Mxfp4>>(panels, first, last, x, out);
}

}  // namespace troupe::avx2

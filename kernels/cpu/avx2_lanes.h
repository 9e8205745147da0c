// Eight floats as a Lane of functions.h, and loads and stores of ragged ends. Everything is forced
// inline: see avx2_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace troupe::avx2 {

#define TROUPE_AVX2 [[gnu::always_inline]] static inline

struct Bf16 {
  uint16_t upper;  // half of a float
};

struct F32x8 {
  __m256 v;
  TROUPE_AVX2 F32x8 set(float x) { return {_mm256_set1_ps(x)}; }
  TROUPE_AVX2 F32x8 zero() { return {_mm256_setzero_ps()}; }
  TROUPE_AVX2 F32x8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  TROUPE_AVX2 F32x8 load(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  TROUPE_AVX2 F32x8 load(const Bf16* p) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
};

TROUPE_AVX2 F32x8 operator+(F32x8 a, F32x8 b) {
  return {_mm256_add_ps(a.v, b.v)};
}
TROUPE_AVX2 F32x8 operator-(F32x8 a, F32x8 b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
TROUPE_AVX2 F32x8 operator*(F32x8 a, F32x8 b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
TROUPE_AVX2 F32x8 operator/(F32x8 a, F32x8 b) {
  return {_mm256_div_ps(a.v, b.v)};
}
TROUPE_AVX2 F32x8 fma(F32x8 a, F32x8 b, F32x8 c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
TROUPE_AVX2 F32x8 clamp(F32x8 x, float low, float high) {
  return {_mm256_min_ps(_mm256_max_ps(x.v, _mm256_set1_ps(low)), _mm256_set1_ps(high))};
}
TROUPE_AVX2 F32x8 is_nan(F32x8 x) {
  return {_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q)};
}
TROUPE_AVX2 F32x8 nan_where(F32x8 x, F32x8 y) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  return {_mm256_blendv_ps(y.v, nan, is_nan(x).v)};
}
TROUPE_AVX2 F32x8 canonical(F32x8 x) {
  return nan_where(x, x);
}
TROUPE_AVX2 F32x8 power_of_two(F32x8 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
}

TROUPE_AVX2 void store(float* p, F32x8 x) {
  _mm256_storeu_ps(p, x.v);
}

// The first `count` (below 8) lanes; the others read as 0 and are not written.
TROUPE_AVX2 __m256i first_lanes(size_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
TROUPE_AVX2 F32x8 load_first(const float* p, size_t count) {
  return {_mm256_maskload_ps(p, first_lanes(count))};
}
TROUPE_AVX2 void store_first(float* p, F32x8 x, size_t count) {
  _mm256_maskstore_ps(p, first_lanes(count), x.v);
}

// Sum of all 16 lanes of N3: halves fold, j with j + 8, then 4, 2, 1.
TROUPE_AVX2 float fold(F32x8 low, F32x8 high) {
  const __m256 eight = _mm256_add_ps(low.v, high.v);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Four bytes in every 32-bit lane.
TROUPE_AVX2 __m256i broadcast_quad(const int8_t* p) {
  int32_t quad;
  __builtin_memcpy(&quad, p, sizeof(quad));
  return _mm256_set1_epi32(quad);
}
TROUPE_AVX2 __m256i load_bytes(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
TROUPE_AVX2 F32x8 load_halves(const std::byte* p) {
  return {_mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)))};
}

}  // namespace troupe::avx2

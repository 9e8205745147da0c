// Quantisation of activations and the operators without weight matrices, a row at a time.
#include "kernels/cpu/avx2_kernels.h"
#include "kernels/cpu/avx2_lanes.h"
#include "kernels/functions.h"

namespace troupe::avx2 {

namespace {

// Bits of the largest |x|: as integers, magnitudes order like floats, with infinity and then NaN on
// top.
TROUPE_AVX2 int32_t largest_magnitude(const __m256 (&x)[4]) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i eight = _mm256_setzero_si256();
  for (const __m256& part : x)
    eight = _mm256_max_epi32(eight, _mm256_and_si256(_mm256_castps_si256(part), mask));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return _mm_cvtsi128_si32(four);
}

TROUPE_AVX2 int32_t total(__m256i eight) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return _mm_cvtsi128_si32(four);
}

constexpr int32_t kInfinityBits = 0x7F800000;

// One block: q and Σ q of each 16 for a finite, not vanishing inverse scale.
TROUPE_AVX2 void quantise_block(const __m256 (&x)[4], float inverse, int8_t* q,
                                int32_t (&sums)[2]) {
  const __m256 factor = _mm256_set1_ps(inverse);
  __m256i whole[4];
  for (int i = 0; i < 4; ++i) whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], factor));
  sums[0] = total(_mm256_add_epi32(whole[0], whole[1]));
  sums[1] = total(_mm256_add_epi32(whole[2], whole[3]));
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                           _mm256_packs_epi32(whole[2], whole[3]));
  // The packs work within halves: put their eight groups of four back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(bytes, order));
}

TROUPE_AVX2 F32x8 swiglu_lane(F32x8 gate, F32x8 up) {
  const F32x8 negated{_mm256_xor_ps(gate.v, _mm256_set1_ps(-0.0F))};
  return canonical((gate / (F32x8::set(1.0F) + exp_lane(negated))) * up);
}

}  // namespace

void quantise_row(const float* x, size_t row, const QuantisedRows& rows) {
  for (size_t b = 0; b < rows.blocks; ++b) {
    const size_t at = row * rows.blocks + b;
    int8_t* q = rows.q + at * 32;
    __m256 parts[4];
    for (size_t i = 0; i < 4; ++i) parts[i] = _mm256_loadu_ps(x + b * 32 + i * 8);
    const int32_t bits = largest_magnitude(parts);
    float amax;
    __builtin_memcpy(&amax, &bits, sizeof(amax));
    const float inverse = 127.0F / amax;
    float d = 0;
    int32_t sums[2] = {0, 0};
    if (bits < kInfinityBits && inverse <= __FLT_MAX__) {
      d = amax / 127.0F;
      quantise_block(parts, inverse, q, sums);
    } else {
      if (bits >= kInfinityBits) d = __builtin_nanf("");
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
    }
    rows.d[at] = d;
    rows.sum[at] = sums[0] + sums[1];
    rows.d_sum[at] = d * static_cast<float>(sums[0] + sums[1]);
    for (size_t half = 0; half < 2; ++half)
      rows.d_half_sums[2 * at + half] = d * static_cast<float>(sums[half]);
  }
}

void rms_norm_row(float* y, const float* x, const float* weight, size_t columns, float epsilon) {
  F32x8 low = F32x8::zero(), high = F32x8::zero();
  size_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    const F32x8 a = F32x8::load(x + c), b = F32x8::load(x + c + 8);
    low = low + a * a;
    high = high + b * b;
  }
  // Lanes beyond the end add +0.0, which changes no sum of squares.
  const size_t left = columns - c;
  const F32x8 a = left >= 8 ? F32x8::load(x + c) : load_first(x + c, left);
  const F32x8 b = left > 8 ? load_first(x + c + 8, left - 8) : F32x8::zero();
  const float squares = fold(low + a * a, high + b * b);
  const F32x8 root{_mm256_sqrt_ps(_mm256_set1_ps(squares / static_cast<float>(columns) + epsilon))};
  for (c = 0; c + 8 <= columns; c += 8)
    store(y + c, canonical((F32x8::load(x + c) / root) * F32x8::load(weight + c)));
  if (c < columns) {
    const F32x8 end = load_first(x + c, columns - c), factor = load_first(weight + c, columns - c);
    store_first(y + c, canonical((end / root) * factor), columns - c);
  }
}

void swiglu(float* y, const float* gate, const float* up, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    store(y + i, swiglu_lane(F32x8::load(gate + i), F32x8::load(up + i)));
  if (i < count)
    store_first(y + i, swiglu_lane(load_first(gate + i, count - i), load_first(up + i, count - i)),
                count - i);
}

void add(float* y, const float* x, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) store(y + i, canonical(F32x8::load(y + i) + F32x8::load(x + i)));
  if (i < count)
    store_first(y + i, canonical(load_first(y + i, count - i) + load_first(x + i, count - i)),
                count - i);
}

// Pairs (2i, 2i + 1): y0 = a·cos - b·sin, y1 = a·sin + b·cos, each product and sum rounded.
void rotate_head(float* x, const float* cosines, const float* sines, size_t pairs) {
  const auto canonical_scalar = [](float v) { return v != v ? __builtin_nanf("") : v; };
  size_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256 both = _mm256_loadu_ps(x + 2 * i);
    const __m128 c = _mm_loadu_ps(cosines + i), s = _mm_loadu_ps(sines + i);
    const __m256 cc = _mm256_set_m128(_mm_unpackhi_ps(c, c), _mm_unpacklo_ps(c, c));
    const __m256 ss = _mm256_set_m128(_mm_unpackhi_ps(s, s), _mm_unpacklo_ps(s, s));
    const __m256 swapped = _mm256_permute_ps(both, 0xB1);
    // Even lanes subtract, odd lanes add.
    store(x + 2 * i,
          canonical(F32x8{_mm256_addsub_ps(_mm256_mul_ps(both, cc), _mm256_mul_ps(swapped, ss))}));
  }
  for (; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = canonical_scalar(a * cosines[i] - b * sines[i]);
    x[2 * i + 1] = canonical_scalar(a * sines[i] + b * cosines[i]);
  }
}

void rotate_halves(float* x, const float* cosines, const float* sines, size_t pairs) {
  const auto rotate = [&](size_t i, const auto& load_lanes, const auto& store_lanes) {
    const F32x8 a = load_lanes(x + i), b = load_lanes(x + pairs + i);
    const F32x8 c = load_lanes(cosines + i), s = load_lanes(sines + i);
    store_lanes(x + i, canonical(a * c - b * s));
    store_lanes(x + pairs + i, canonical(a * s + b * c));
  };
  size_t i = 0;
  for (; i + 8 <= pairs; i += 8)
    rotate(
        i, [](const float* p) { return F32x8::load(p); },
        [](float* p, F32x8 lanes) { store(p, lanes); });
  const size_t left = pairs - i;
  if (left > 0)
    rotate(
        i, [&](const float* p) { return load_first(p, left); },
        [&](float* p, F32x8 lanes) { store_first(p, lanes, left); });
}

void store_halves(uint16_t* to, const float* from, size_t count) {
  size_t i = 0;
  const auto halves = [](F32x8 x) {
    return _mm256_cvtps_ph(canonical(x).v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves(F32x8::load(from + i)));
  if (i < count) {
    const __m128i end = halves(load_first(from + i, count - i));
    __builtin_memcpy(to + i, &end, (count - i) * sizeof(uint16_t));
  }
}

}  // namespace troupe::avx2

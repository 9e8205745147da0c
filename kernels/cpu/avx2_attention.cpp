// Attention over one page of 64 positions (N5). Scores and weighted values are the same loop: a
// vector times a matrix whose rows lie in memory order, with lanes over positions for scores (keys
// are [head_dim][64]) and over dimensions for values ([64][head_dim]). Two queries go together, so
// that a load serves two products. With several queries a page is widened to floats once, in
// scratch that stays in L1/L2 (16 KiB each for 64 dimensions).
#include "kernels/cpu/avx2_kernels.h"
#include "kernels/cpu/avx2_lanes.h"
#include "kernels/functions.h"
#include "kernels/slices.h"

namespace troupe::avx2 {

namespace {

constexpr size_t kPage = 64;
constexpr size_t kTile = 32;     // columns a tile computes: 4 vectors
constexpr size_t kTogether = 3;  // 12 sums of 8 lanes, 3 registers for what they read
constexpr size_t kShared = 4;    // from so many queries on, widening a page first pays

TROUPE_AVX2 size_t padded(size_t head_dim) {
  return (head_dim + kTile - 1) / kTile * kTile;
}
TROUPE_AVX2 size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

// acc[i] += Σ a[i][k] · m[k][0..31], k ascending.
template <class Element, size_t kQueries>
TROUPE_AVX2 void accumulate(const float* const (&a)[kQueries], const Element* m, size_t stride,
                            size_t k_begin, size_t k_end, F32x8 (&acc)[kQueries][4]) {
  for (size_t k = k_begin; k < k_end; ++k)
    for (size_t v = 0; v < 4; ++v) {
      const F32x8 column = F32x8::load(m + k * stride + v * 8);
      for (size_t i = 0; i < kQueries; ++i) acc[i][v] = fma(column, F32x8::set(a[i][k]), acc[i][v]);
    }
}

template <size_t kQueries>
TROUPE_AVX2 void clear(F32x8 (&acc)[kQueries][4]) {
  for (auto& row : acc)
    for (F32x8& lane : row) lane = F32x8::zero();
}

// 32 scores before scaling, slice by slice (N2).
template <class Element, size_t kQueries>
TROUPE_AVX2 void score_tile(const float* const (&q)[kQueries], const Element* keys, size_t head_dim,
                            F32x8 (&total)[kQueries][4]) {
  const size_t blocks = slice_blocks(head_dim);
  if (blocks == 2) {
    // Slices 3 and 7 hold a block each and the other six are +0.0: the tree is (s3 + 0) + (s7 + 0).
    F32x8 last[kQueries][4];
    clear(total);
    clear(last);
    accumulate(q, keys, kPage, 0, kSliceBlock, total);
    accumulate(q, keys, kPage, kSliceBlock, head_dim, last);
    for (size_t i = 0; i < kQueries; ++i)
      for (size_t v = 0; v < 4; ++v)
        total[i][v] = (total[i][v] + F32x8::zero()) + (last[i][v] + F32x8::zero());
    return;
  }
  F32x8 sums[kQueries][4][kSlices];
  for (size_t s = 0; s < kSlices; ++s) {
    F32x8 acc[kQueries][4];
    clear(acc);
    const size_t end = smaller(slice_begin(s + 1, blocks) * kSliceBlock, head_dim);
    accumulate(q, keys, kPage, slice_begin(s, blocks) * kSliceBlock, end, acc);
    for (size_t i = 0; i < kQueries; ++i)
      for (size_t v = 0; v < 4; ++v) sums[i][v][s] = acc[i][v];
  }
  for (size_t i = 0; i < kQueries; ++i)
    for (size_t v = 0; v < 4; ++v) total[i][v] = combine_slices(sums[i][v]);
}

// Scores of all 64 positions.
template <class Element, size_t kQueries>
TROUPE_AVX2 void score_page(const float* const (&q)[kQueries], const Element* keys, size_t head_dim,
                            float scale, float (&scores)[kTogether][kPage]) {
  for (size_t p = 0; p < kPage; p += kTile) {
    F32x8 total[kQueries][4];
    score_tile(q, keys + p, head_dim, total);
    for (size_t i = 0; i < kQueries; ++i)
      for (size_t v = 0; v < 4; ++v) store(scores[i] + p + v * 8, total[i][v] * F32x8::set(scale));
  }
}

struct Softmax {
  float largest;
  float sum;
};

TROUPE_AVX2 float exponential(float x) {
  return _mm256_cvtss_f32(exp_lane(F32x8::set(x)).v);
}

// The larger; NaN if either is.
TROUPE_AVX2 float maximum(float a, float b) {
  return a != a || a > b ? a : b;
}

TROUPE_AVX2 float largest_of(const float (&scores)[kPage], size_t count) {
  F32x8 largest = F32x8::set(-__builtin_inff());
  F32x8 unordered = F32x8::zero();
  for (size_t p = 0; p < count; p += 8) {
    F32x8 x = F32x8::load(scores + p);
    if (p + 8 > count)
      x.v = _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x.v,
                             _mm256_castsi256_ps(first_lanes(count - p)));
    largest.v = _mm256_max_ps(largest.v, x.v);
    unordered.v = _mm256_or_ps(unordered.v, is_nan(x).v);
  }
  if (_mm256_movemask_ps(unordered.v) != 0) return __builtin_nanf("");
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(largest.v), _mm256_extractf128_ps(largest.v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}

// scores[p] := exp(scores[p] - largest) for the first `count`; their sum by N3 (absent ones add
// +0.0).
TROUPE_AVX2 Softmax exponentials(float (&scores)[kPage], size_t count) {
  const float largest = largest_of(scores, count);
  F32x8 lanes[2] = {F32x8::zero(), F32x8::zero()};
  for (size_t p = 0; p < count; p += 8) {
    F32x8 e = exp_lane(F32x8::load(scores + p) - F32x8::set(largest));
    if (p + 8 > count) e.v = _mm256_and_ps(e.v, _mm256_castsi256_ps(first_lanes(count - p)));
    store(scores + p, e);
    lanes[p / 8 % 2] = lanes[p / 8 % 2] + e;
  }
  return {largest, fold(lanes[0], lanes[1])};
}

// Dimensions d to d + 31 of a query's sum: total · keep + page · join, or the page's own if it is
// the first.
TROUPE_AVX2 void merge_tile(float* y, const F32x8 (&page)[4], size_t left, bool first, float keep,
                            float join) {
  for (size_t v = 0; v < 4 && v * 8 < left; ++v) {
    const size_t lanes = smaller(8, left - v * 8);
    float* to = y + v * 8;
    F32x8 sum = page[v];
    if (!first) {
      const F32x8 total = lanes == 8 ? F32x8::load(to) : load_first(to, lanes);
      sum = total * F32x8::set(keep) + page[v] * F32x8::set(join);
    }
    if (lanes == 8)
      store(to, sum);
    else
      store_first(to, sum, lanes);
  }
}

template <class Element, size_t kQueries>
TROUPE_AVX2 void attend(Query* const (&queries)[kQueries], size_t first, const Element* keys,
                        const Element* values, size_t value_stride, size_t head_dim, float scale) {
  alignas(32) float e[kTogether][kPage];
  const float* vectors[kQueries];
  for (size_t i = 0; i < kQueries; ++i) vectors[i] = queries[i]->q;
  score_page(vectors, keys, head_dim, scale, e);
  size_t counts[kQueries];
  float keep[kQueries], join[kQueries];
  size_t common = kPage;
  for (size_t i = 0; i < kQueries; ++i) {
    Query& query = *queries[i];
    counts[i] = smaller(kPage, query.tokens - first);
    common = smaller(common, counts[i]);
    const Softmax page = exponentials(e[i], counts[i]);
    const float largest = first == 0 ? page.largest : maximum(query.largest, page.largest);
    keep[i] = exponential(query.largest - largest);
    join[i] = exponential(page.largest - largest);
    query.sum = first == 0 ? page.sum : query.sum * keep[i] + page.sum * join[i];
    query.largest = largest;
    vectors[i] = e[i];
  }
  for (size_t d = 0; d < head_dim; d += kTile) {
    F32x8 acc[kQueries][4];
    clear(acc);
    accumulate(vectors, values + d, value_stride, 0, common, acc);
    for (size_t i = 0; i < kQueries; ++i) {
      const float* const vector[1] = {vectors[i]};
      F32x8 rest[1][4];
      for (size_t v = 0; v < 4; ++v) rest[0][v] = acc[i][v];
      accumulate(vector, values + d, value_stride, common, counts[i], rest);
      merge_tile(queries[i]->y + d, rest[0], head_dim - d, first == 0, keep[i], join[i]);
    }
  }
}

// Queries three by three.
template <class Element>
TROUPE_AVX2 void attend_all(Query* queries, size_t count, size_t first, const Element* keys,
                            const Element* values, size_t value_stride, size_t head_dim,
                            float scale) {
  Query* group[kTogether];
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) {
    if (queries[i].tokens <= first) continue;
    group[size++] = queries + i;
    if (size < kTogether) continue;
    attend<Element, 3>({group[0], group[1], group[2]}, first, keys, values, value_stride, head_dim,
                       scale);
    size = 0;
  }
  if (size == 2)
    attend<Element, 2>({group[0], group[1]}, first, keys, values, value_stride, head_dim, scale);
  if (size == 1) attend<Element, 1>({group[0]}, first, keys, values, value_stride, head_dim, scale);
}

TROUPE_AVX2 void widen(float* to, const uint16_t* from, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) store(to + i, F32x8::load(from + i));
  if (i == count) return;
  uint16_t end[8] = {};
  __builtin_memcpy(end, from + i, (count - i) * sizeof(uint16_t));
  store(to + i, F32x8::load(end));
}

}  // namespace

size_t attention_scratch_floats(size_t head_dim) {
  return kPage * (head_dim + padded(head_dim));
}

void attend_page(Query* queries, size_t count, size_t first, const uint16_t* keys,
                 const uint16_t* values, size_t head_dim, float scale, float* scratch) {
  size_t active = 0, tokens = 0;
  for (size_t i = 0; i < count; ++i) {
    if (queries[i].tokens <= first) continue;
    ++active;
    tokens = tokens > queries[i].tokens ? tokens : queries[i].tokens;
  }
  if (active < kShared && head_dim % kTile == 0) {
    attend_all(queries, count, first, keys, values, head_dim, head_dim, scale);
    return;
  }
  // Rows of values are padded to whole tiles; what lies beyond head_dim is computed and dropped.
  float* wide_keys = scratch;
  float* wide_values = scratch + kPage * head_dim;
  const size_t stride = padded(head_dim);
  widen(wide_keys, keys, kPage * head_dim);
  for (size_t p = 0; p < smaller(kPage, tokens - first); ++p)
    widen(wide_values + p * stride, values + p * head_dim, head_dim);
  attend_all(queries, count, first, wide_keys, wide_values, stride, head_dim, scale);
}

void finish_query(const Query& query, size_t head_dim) {
  const F32x8 sum = F32x8::set(query.sum);
  size_t d = 0;
  for (; d + 8 <= head_dim; d += 8) store(query.y + d, canonical(F32x8::load(query.y + d) / sum));
  if (d < head_dim)
    store_first(query.y + d, canonical(load_first(query.y + d, head_dim - d) / sum), head_dim - d);
}

}  // namespace troupe::avx2

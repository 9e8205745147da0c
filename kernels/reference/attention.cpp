// Keys and values of a layer, and causal attention over them page by page (N5).
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/checks.h"
#include "kernels/functions.h"
#include "kernels/quant_blocks.h"
#include "kernels/reference/reference_operators.h"
#include "kernels/scalar_lane.h"
#include "kernels/slices.h"
#include "kernels/vector_sum.h"

namespace troupe {

namespace {

constexpr size_t kPage = kKvBlockTokens;

// What is known of the softmax so far: its largest score, Σ exp(score - largest), Σ exp(…) · value.
struct Partial {
  float largest = 0;
  float sum = 0;
  std::vector<float> weighted;  // [head_dim]
};

float exponential(float x) {
  return exp_lane(ScalarLane{x}).value;
}

// The larger; NaN if either is.
float maximum(float a, float b) {
  return a != a || a > b ? a : b;
}

// q · key by N2; keys [head_dim][kPage] of one head, already at the position's slot.
float score(const float* q, const uint16_t* keys, size_t head_dim) {
  float sums[kSlices] = {};
  const size_t blocks = slice_blocks(head_dim);
  for (size_t s = 0; s < kSlices; ++s) {
    const size_t end = std::min(slice_begin(s + 1, blocks) * kSliceBlock, head_dim);
    for (size_t d = slice_begin(s, blocks) * kSliceBlock; d < end; ++d)
      sums[s] = std::fma(half_to_float(keys[d * kPage]), q[d], sums[s]);
  }
  return combine_slices(sums);
}

// The first `count` positions of one page.
Partial attend_page(const float* q, const uint16_t* keys, const uint16_t* values, size_t count,
                    size_t head_dim, float scale) {
  float e[kPage];
  for (size_t p = 0; p < count; ++p) e[p] = score(q, keys + p, head_dim) * scale;
  Partial page;
  page.largest = e[0];
  for (size_t p = 1; p < count; ++p) page.largest = maximum(page.largest, e[p]);
  for (size_t p = 0; p < count; ++p) e[p] = exponential(e[p] - page.largest);
  page.sum = vector_sum(count, [&](size_t p) { return e[p]; });
  page.weighted.assign(head_dim, 0.0F);
  for (size_t d = 0; d < head_dim; ++d)
    for (size_t p = 0; p < count; ++p)
      page.weighted[d] = std::fma(e[p], half_to_float(values[p * head_dim + d]), page.weighted[d]);
  return page;
}

// total := total followed by page.
void merge(Partial& total, const Partial& page) {
  const float largest = maximum(total.largest, page.largest);
  const float keep = exponential(total.largest - largest);
  const float join = exponential(page.largest - largest);
  total.largest = largest;
  total.sum = total.sum * keep + page.sum * join;
  for (size_t d = 0; d < total.weighted.size(); ++d)
    total.weighted[d] = total.weighted[d] * keep + page.weighted[d] * join;
}

}  // namespace

void ReferenceOperators::store_kv(const KvLayer& layer, TensorView<const float> k,
                                  TensorView<const float> v, std::span<const RowPlace> places) {
  check_store_kv(layer, k, v, places);
  for (size_t r = 0; r < k.rows; ++r) {
    const size_t block = places[r].blocks[places[r].position / kPage];
    const size_t slot = places[r].position % kPage;
    for (size_t h = 0; h < layer.kv_heads; ++h) {
      const size_t page = (block * layer.kv_heads + h) * layer.head_dim * kPage;
      for (size_t d = 0; d < layer.head_dim; ++d) {
        const size_t c = h * layer.head_dim + d;
        layer.keys[page + d * kPage + slot] = float_to_half(canonical(k.row(r)[c]));
        layer.values[page + slot * layer.head_dim + d] = float_to_half(canonical(v.row(r)[c]));
      }
    }
  }
}

void ReferenceOperators::attention(TensorView<float> y, TensorView<const float> q,
                                   const KvLayer& layer, std::span<const RowPlace> places,
                                   float scale) {
  check_attention(y, q, layer, places);
  const size_t head_dim = layer.head_dim;
  const size_t heads = q.columns / head_dim;
  for (size_t r = 0; r < q.rows; ++r)
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = h / (heads / layer.kv_heads);
      const float* query = q.row(r).data() + h * head_dim;
      const size_t tokens = size_t{places[r].position} + 1;
      Partial total;
      for (size_t first = 0; first < tokens; first += kPage) {
        const size_t block = places[r].blocks[first / kPage];
        const size_t page = (block * layer.kv_heads + kv_head) * head_dim * kPage;
        Partial part = attend_page(query, layer.keys + page, layer.values + page,
                                   std::min(kPage, tokens - first), head_dim, scale);
        if (first == 0)
          total = std::move(part);
        else
          merge(total, part);
      }
      for (size_t d = 0; d < head_dim; ++d)
        y.row(r)[h * head_dim + d] = canonical(total.weighted[d] / total.sum);
    }
}

}  // namespace troupe

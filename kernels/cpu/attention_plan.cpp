#include "kernels/cpu/attention_plan.h"

#include <algorithm>

namespace troupe {

namespace {

constexpr size_t kRowsTogether =
    16;  // rows of a task: enough to share a widened page, few enough to balance

}  // namespace

void AttentionPlan::prepare(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                            std::span<const RowPlace> places, float scale) {
  y_ = y;
  q_ = q;
  layer_ = layer;
  places_ = places;
  scale_ = scale;
  heads_ = q.columns / layer.head_dim;
  runs_.clear();
  products_ = 0;
  for (size_t r = 0; r < places.size(); ++r) {
    const bool joins = !runs_.empty() && r - runs_.back().first < kRowsTogether &&
                       places[r].blocks.data() == places[r - 1].blocks.data();
    if (joins)
      runs_.back().last = r + 1;
    else
      runs_.push_back({r, r + 1});
    products_ += 2 * (size_t{places[r].position} + 1) * q.columns;
  }
  const size_t sharing = heads_ / layer.kv_heads;
  const bool enough = runs_.size() * layer.kv_heads >= 4 * scratch_.size();
  heads_together_ = enough || scratch_.size() == 1 ? sharing : 1;
}

void AttentionPlan::run(size_t task, size_t thread) {
  const size_t head_groups = heads_ / heads_together_;
  const RowRun rows = runs_[task / head_groups];
  const size_t first_head = task % head_groups * heads_together_;
  const size_t head_dim = layer_.head_dim;
  const size_t kv_head = first_head / (heads_ / layer_.kv_heads);
  Scratch& scratch = scratch_[thread];
  scratch.queries.clear();
  size_t tokens = 0;
  std::span<const uint32_t> blocks;  // of the row that sees most: the others' are its first ones
  for (size_t r = rows.first; r < rows.last; ++r)
    for (size_t h = first_head; h < first_head + heads_together_; ++h) {
      const size_t seen = size_t{places_[r].position} + 1;
      if (seen > tokens) blocks = places_[r].blocks;
      tokens = std::max(tokens, seen);
      scratch.queries.push_back({.q = q_.row(r).data() + h * head_dim,
                                 .y = y_.row(r).data() + h * head_dim,
                                 .tokens = seen});
    }
  const size_t floats = avx2::attention_scratch_floats(head_dim);
  if (scratch.memory.size() < floats) scratch.memory.resize(floats);
  for (size_t first = 0; first < tokens; first += kKvBlockTokens) {
    const size_t block = blocks[first / kKvBlockTokens];
    const size_t page = (block * layer_.kv_heads + kv_head) * head_dim * kKvBlockTokens;
    avx2::attend_page(scratch.queries.data(), scratch.queries.size(), first, layer_.keys + page,
                      layer_.values + page, head_dim, scale_, scratch.memory.data());
  }
  for (const avx2::Query& query : scratch.queries) avx2::finish_query(query, head_dim);
}

}  // namespace troupe

#include "models/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace troupe {

Result<std::unique_ptr<Evaluator>> Evaluator::make(Options options) {
  TROUPE_CHECK(options.operators != nullptr, "operators are chosen before models are loaded");
  const ModelConfig& config = options.config;
  if (options.tokens_max == 0 || options.tokens_max > config.context_max)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("texts of {} tokens; allowed are 1 to the model's context of {}",
                             options.tokens_max, config.context_max)};
  constexpr uint32_t kRowsMax = 8192;
  if (options.rows_max == 0 || options.rows_max > kRowsMax)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("rows_max {}; allowed are 1 to {}", options.rows_max, kRowsMax)};
  const auto blocks =
      static_cast<uint32_t>((options.tokens_max + kKvBlockTokens - 1) / kKvBlockTokens);
  TROUPE_TRY(KvCache cache, KvCache::allocate({.layers = config.layers,
                                               .kv_heads = config.kv_heads,
                                               .head_dim = config.head_dim,
                                               .blocks = blocks}));
  const StagePart whole{.layers = {0, config.layers}, .first = true, .last = true};
  TROUPE_TRY(StageWeights weights,
             load_stage_weights(options.file, config, whole, *options.operators));
  return std::unique_ptr<Evaluator>(
      new Evaluator(std::move(options), std::move(weights), std::move(cache)));
}

Evaluator::Evaluator(Options options, StageWeights weights, KvCache cache)
    : config_(std::move(options.config)),
      tokens_max_(options.tokens_max),
      rows_max_(options.rows_max),
      operators_(std::move(options.operators)),
      weights_(std::move(weights)),
      cache_(std::move(cache)),
      forward_(config_, *operators_, rows_max_, true),
      x_(SharedBuffer::allocate(size_t{rows_max_} * config_.hidden * sizeof(float))),
      blocks_(cache_.blocks()) {
  std::iota(blocks_.begin(), blocks_.end(), 0U);
}

Result<void> Evaluator::run(std::span<const uint32_t> tokens, const Visit& visit) {
  if (tokens.empty() || tokens.size() > tokens_max_)
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a text of {} tokens; allowed are 1 to {}", tokens.size(), tokens_max_)};
  for (const uint32_t token : tokens)
    if (token >= config_.vocabulary)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("token {}; the vocabulary has {}", token, config_.vocabulary)};
  std::vector<RowPlace> places;
  std::vector<size_t> which;
  for (size_t begin = 0; begin < tokens.size(); begin += rows_max_) {
    const size_t rows = std::min<size_t>(rows_max_, tokens.size() - begin);
    const TensorView<float> x{x_.as_mutable<float>().data(), rows, config_.hidden};
    operators_->embed(x, tokens.subspan(begin, rows), *weights_.embedding);
    places.clear();
    for (size_t r = 0; r < rows; ++r) places.push_back({static_cast<uint32_t>(begin + r), blocks_});
    const RowRange all{0, rows};
    for (uint32_t layer = 0; layer < config_.layers; ++layer)
      forward_.layer(x, weights_.layers[layer], cache_.layer(layer), {places, {&all, 1}});
    for (size_t from = 0; from < rows; from += Forward::kHeadRowsMax) {
      which.resize(std::min(Forward::kHeadRowsMax, rows - from));
      std::iota(which.begin(), which.end(), from);
      const TensorView<const float> logits = forward_.head(x, which, weights_);
      for (size_t i = 0; i < which.size(); ++i)
        visit(static_cast<uint32_t>(begin + from + i), logits.row(i));
    }
  }
  return {};
}

}  // namespace troupe

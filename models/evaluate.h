// The logits of every position of a text, for perplexity and for comparing models: what a stage
// would compute, without micro-batches, sampling or other sequences.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "models/architecture.h"
#include "models/forward.h"
#include "models/gguf.h"
#include "models/kv_cache.h"
#include "models/weights.h"

namespace troupe {

class Evaluator {
 public:
  struct Options {
    GgufFile file;                         // not kept
    ModelConfig config;                    // read_model_config(file)
    std::shared_ptr<Operators> operators;  // used from one thread
    uint32_t tokens_max = 0;               // of a text; 1 to the model's context
    uint32_t rows_max = 64;                // computed at a time; changes no bit of the result
  };
  // position, logits [vocabulary]: the distribution of the token at position + 1. Valid during the
  // call.
  using Visit = std::function<void(uint32_t position, std::span<const float> logits)>;

  // Errors: kInvalidArgument (limits), and those of load_stage_weights and KvCache::allocate.
  static Result<std::unique_ptr<Evaluator>> make(Options options);

  // Visits positions [0, tokens.size()) in ascending order, starting from nothing.
  // Errors: kInvalidArgument (no tokens, more than tokens_max, one outside the vocabulary).
  Result<void> run(std::span<const uint32_t> tokens, const Visit& visit);

 private:
  Evaluator(Options options, StageWeights weights, KvCache cache);

  const ModelConfig config_;
  const uint32_t tokens_max_, rows_max_;
  const std::shared_ptr<Operators> operators_;
  const StageWeights weights_;
  KvCache cache_;
  Forward forward_;
  SharedBuffer x_;                // [rows_max][hidden]
  std::vector<uint32_t> blocks_;  // 0, 1, 2, …
};

}  // namespace troupe

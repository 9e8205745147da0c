// A stage of a transformer: layers [first, last), their keys and values, the embedding on the first
// stage, the head and the sampler on the last. It executes what the batcher decided and decides
// nothing.
//
// Every field of a micro-batch is checked before anything changes: block tables, token ids, shapes,
// positions. What the micro-batch claims about KV blocks is compared with what the cache remembers
// (kv_cache.h).
#pragma once

#include <memory>

#include "kernels/ops.h"
#include "models/architecture.h"
#include "models/gguf.h"
#include "models/kv_proofs.h"
#include "models/stage_program.h"

namespace troupe {

inline constexpr uint32_t kStageRowsMax = 8192;

struct TransformerStageOptions {
  GgufFile file;            // not kept: weights are packed, its pages given back
  ModelConfig config;       // read_model_config(file)
  LayerRange layers;        // the first stage starts at 0, the last one ends at config.layers
  uint32_t kv_blocks = 0;   // of kKvBlockTokens positions, shared by all sequences
  uint32_t rows_max = 256;  // of a micro-batch; 1 to kStageRowsMax
  KeptMemory kept{};        // where keys and values outlive this process; by default they do not
  std::shared_ptr<Operators> operators;  // stages that share one run one at a time
};

// Errors: kInvalidArgument (an empty or too large range, rows_max, kv_blocks), kInvalidFile and
// those of load_stage_weights, kResourceExhausted (no memory for the cache).
Result<std::unique_ptr<StageProgram>> make_transformer_stage(TransformerStageOptions options);

}  // namespace troupe

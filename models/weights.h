// The weights of one stage: its layers, the embedding if it is the first, the final norm and the
// head if it is the last. Each matrix is packed once, into the layout its kernels compute on; the
// file's pages are given back right behind, so loading holds one copy of the weights, not two.
// Names and shapes are told by architectures/decoder.h.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "models/architecture.h"
#include "models/gguf.h"

namespace troupe {

struct LayerWeights {
  std::vector<float> attention_norm;
  std::unique_ptr<Weights> query, key, value, attention_output;
  std::vector<float> query_bias, key_bias, value_bias;  // empty: none
  std::vector<float> query_norm, key_norm;              // [head_dim], empty: none
  std::vector<float> feed_forward_norm;
  std::unique_ptr<Weights> gate, up, down;
};

struct StageWeights {
  std::shared_ptr<const Weights> embedding;  // first stage, else null
  std::vector<LayerWeights> layers;          // of the stage's range, in order
  std::vector<float> output_norm;            // last stage, else empty
  std::shared_ptr<const Weights>
      head;            // last stage, else null; the embedding itself if tied and both are here
  uint64_t bytes = 0;  // memory all of it takes; a shared matrix counts once
};

// Which part of a model a stage holds.
struct StagePart {
  LayerRange layers;
  bool first = false;  // embeds tokens
  bool last = false;   // has the head
};

// `config` is the file's own (read_model_config, which refuses tensors that have no place in the
// model). Errors: kInvalidFile (a tensor is missing, has another shape or type, or holds NaN or
// infinity),
// kInvalidArgument (an empty range, or one beyond the model), and those of Operators::pack.
Result<StageWeights> load_stage_weights(const GgufFile& file, const ModelConfig& config,
                                        const StagePart& part, Operators& operators);

}  // namespace troupe

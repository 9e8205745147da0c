// K stage programs in one process, and a plain driver: tokens in, tokens and digests of logits out.
// No actors, no transport; what it shows is what the arithmetic and the stages promise.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"
#include "models/architecture.h"
#include "models/gguf.h"
#include "models/stage_program.h"

namespace troupe::test {

struct PipelineOptions {
  uint32_t stages = 1;  // layers are cut as evenly as they go; at most the model's layers
  BackendOptions backend;
  uint32_t kv_blocks = 64;
  uint32_t rows_max = 256;
};

class Pipeline {
 public:
  // All stages share one set of operators, since they run one after the other.
  static Result<Pipeline> make(const GgufFile& file, const PipelineOptions& options);

  // A micro-batch through all stages. An error is the first stage's that refused.
  Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t> tokens);

  const ModelConfig& config() const { return config_; }
  const PipelineOptions& options() const { return options_; }
  size_t stages() const { return stages_.size(); }
  StageProgram& stage(size_t index) { return *stages_[index]; }
  void reset();

 private:
  ModelConfig config_;
  PipelineOptions options_;
  std::vector<std::unique_ptr<StageProgram>> stages_;
};

struct Prompt {
  std::vector<uint32_t> tokens;
  SamplingParameters sampling;
};

struct GenerateOptions {
  uint32_t tokens = 16;  // generated per prompt
  uint32_t batch = 1;    // sequences at once
  uint32_t chunk = 0;    // prefill rows of a sequence in one micro-batch; 0 is all of them
  uint64_t block_seed =
      0;  // KV blocks are handed out in an order shuffled from this; 0 is ascending
  uint32_t first_sequence = 1;
};

struct Generation {
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> digests;  // of the logits each token was chosen from
  friend bool operator==(const Generation&, const Generation&) = default;
};

// Prompts in, generations out, in their order. Sequences are released when they end.
Result<std::vector<Generation>> generate(Pipeline& pipeline, std::span<const Prompt> prompts,
                                         const GenerateOptions& options);

// Where two sets of generations differ first, in words; empty if nowhere.
std::string first_difference(std::span<const Generation> a, std::span<const Generation> b);

}  // namespace troupe::test

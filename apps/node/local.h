// `troupe run`: a model and a prompt in one process, without a cluster. The same stages, batcher
// and scheduler as a daemon's, with isolation "thread" and the loopback transport; nothing listens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "base/sampling.h"

namespace troupe {

struct RunOptions {
  std::string model_path;  // of a GGUF file
  std::string prompt;
  bool raw = false;  // false: one user message through the model's chat template
  uint32_t max_tokens = 256;
  SamplingParameters sampling;
  uint32_t context = 2048;
  uint32_t stages = 1;
  uint32_t threads = 1;  // of each stage
  std::string kernels = "auto";
  bool ignore_end = false;
};

struct RunSummary {
  FinishReason reason = FinishReason::kFailed;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  double load_seconds = 0;         // until the model could take the prompt
  double first_token_seconds = 0;  // from then to the first token
  double total_seconds = 0;        // from then to the last one
};

// Blocks until the answer ends. `on_text` gets complete UTF-8 pieces, one call at a time. Setting
// `cancelled` ends it within a step, with FinishReason::kCancelled.
Result<RunSummary> run_local(const RunOptions& options,
                             const std::function<void(const std::string&)>& on_text,
                             const std::atomic<bool>& cancelled);

}  // namespace troupe

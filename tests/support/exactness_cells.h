// The matrix of exactness: everything that must not change a bit of what a model says, as cells
// that are run one by one and compared with the first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tests/support/pipeline.h"

namespace troupe::test {

struct ExactnessCell {
  KernelChoice kernels = KernelChoice::kAuto;
  size_t threads = 1;
  uint32_t stages = 1;
  uint32_t batch = 1;    // sequences at once
  uint32_t chunk = 0;    // prefill rows; 0 is the whole prompt
  bool split_k = false;  // the negative control
};

std::string to_string(const ExactnessCell& cell);

struct ExactnessAxes {
  std::vector<KernelChoice> kernels;
  std::vector<size_t> threads;
  std::vector<uint32_t> stages, batches, chunks;
};

// All combinations, those that share a pipeline side by side. The reference kernels compute on one
// thread, so they appear once however many thread counts there are.
std::vector<ExactnessCell> all_cells(const ExactnessAxes& axes);

// Runs cells; keeps the pipeline between cells that differ in batch and chunk only, since loading
// costs time.
class ExactnessRunner {
 public:
  ExactnessRunner(GgufFile file, std::vector<Prompt> prompts, uint32_t tokens)
      : file_(std::move(file)), prompts_(std::move(prompts)), tokens_(tokens) {}

  Result<std::vector<Generation>> run(const ExactnessCell& cell);

 private:
  Result<void> prepare(const ExactnessCell& cell);

  GgufFile file_;
  std::vector<Prompt> prompts_;
  uint32_t tokens_;
  std::optional<Pipeline> pipeline_;
  ExactnessCell prepared_;
  uint64_t runs_ = 0;
};

}  // namespace troupe::test

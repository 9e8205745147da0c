#include "tests/support/exactness_cells.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::test {

std::string to_string(const ExactnessCell& cell) {
  return fmt::format("{} kernels, {} threads, {} stages, batch {}, chunk {}{}",
                     troupe::to_string(cell.kernels), cell.threads, cell.stages, cell.batch,
                     cell.chunk == 0 ? "whole" : std::to_string(cell.chunk),
                     cell.split_k ? ", split k" : "");
}

std::vector<ExactnessCell> all_cells(const ExactnessAxes& axes) {
  std::vector<ExactnessCell> cells;
  for (const KernelChoice kernels : axes.kernels)
    for (size_t t = 0; t < axes.threads.size(); ++t) {
      const bool reference = kernels == KernelChoice::kReference;
      if (reference && t > 0) continue;
      for (const uint32_t stages : axes.stages)
        for (const uint32_t batch : axes.batches)
          for (const uint32_t chunk : axes.chunks)
            cells.push_back({.kernels = kernels,
                             .threads = reference ? 1 : axes.threads[t],
                             .stages = stages,
                             .batch = batch,
                             .chunk = chunk});
    }
  return cells;
}

Result<std::vector<Generation>> ExactnessRunner::run(const ExactnessCell& cell) {
  TROUPE_TRY_VOID(prepare(cell));
  pipeline_->reset();
  // Another order of KV blocks each time: one more thing that must not matter.
  return generate(
      *pipeline_, prompts_,
      {.tokens = tokens_, .batch = cell.batch, .chunk = cell.chunk, .block_seed = runs_++});
}

Result<void> ExactnessRunner::prepare(const ExactnessCell& cell) {
  const bool same = pipeline_.has_value() && prepared_.kernels == cell.kernels &&
                    prepared_.threads == cell.threads && prepared_.stages == cell.stages &&
                    prepared_.split_k == cell.split_k;
  if (same) return {};
  size_t longest = 0;
  for (const Prompt& prompt : prompts_) longest = std::max(longest, prompt.tokens.size());
  const size_t blocks = (longest + tokens_ + kKvBlockTokens - 1) / kKvBlockTokens * prompts_.size();
  pipeline_.reset();
  TROUPE_TRY(pipeline_, Pipeline::make(file_, {.stages = cell.stages,
                                               .backend = {.kernels = cell.kernels,
                                                           .threads = cell.threads,
                                                           .test_split_k = cell.split_k},
                                               .kv_blocks = static_cast<uint32_t>(blocks)}));
  prepared_ = cell;
  return {};
}

}  // namespace troupe::test

#include "tests/support/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>

#include "kernels/ops.h"
#include "models/transformer_stage.h"

namespace troupe::test {

Result<Pipeline> Pipeline::make(const GgufFile& file, const PipelineOptions& options) {
  Pipeline pipeline;
  pipeline.options_ = options;
  TROUPE_TRY(pipeline.config_, read_model_config(file));
  const uint32_t layers = pipeline.config_.layers;
  if (options.stages == 0 || options.stages > layers)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} stages of {} layers", options.stages, layers)};
  TROUPE_TRY(auto made, make_operators(options.backend));
  const std::shared_ptr<Operators> operators = std::move(made);
  for (uint32_t s = 0; s < options.stages; ++s) {
    const LayerRange range{layers * s / options.stages, layers * (s + 1) / options.stages};
    TROUPE_TRY(auto stage, make_transformer_stage({.file = file,
                                                   .config = pipeline.config_,
                                                   .layers = range,
                                                   .kv_blocks = options.kv_blocks,
                                                   .rows_max = options.rows_max,
                                                   .operators = operators}));
    pipeline.stages_.push_back(std::move(stage));
  }
  return pipeline;
}

Result<StageOutput> Pipeline::run(const MicroBatch& batch, std::span<const uint32_t> tokens) {
  StageOutput output;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const SharedBuffer input = output.hidden;
    TROUPE_TRY(output,
               stages_[s]->run(batch, s == 0 ? tokens : std::span<const uint32_t>{}, input));
  }
  return output;
}

void Pipeline::reset() {
  for (auto& stage : stages_) stage->reset();
}

namespace {

struct Sequence {
  size_t prompt = 0;
  SequenceId id;
  std::vector<uint32_t> log;  // prompt and generated tokens
  size_t fed = 0;
  std::vector<uint32_t> blocks;
};

class Driver {
 public:
  Driver(Pipeline& pipeline, std::span<const Prompt> prompts, const GenerateOptions& options)
      : pipeline_(pipeline), prompts_(prompts), options_(options), made_(prompts.size()) {
    free_.resize(pipeline.options().kv_blocks);
    std::iota(free_.begin(), free_.end(), 0U);
    std::mt19937_64 random(options.block_seed);
    if (options.block_seed != 0) std::shuffle(free_.begin(), free_.end(), random);
  }

  Result<std::vector<Generation>> run() {
    while (true) {
      admit();
      TROUPE_TRY(const bool more, step());
      if (!more) return std::move(made_);
    }
  }

 private:
  void admit() {
    while (running_.size() < options_.batch && next_ < prompts_.size()) {
      running_.push_back({.prompt = next_,
                          .id = SequenceId{options_.first_sequence + next_},
                          .log = prompts_[next_].tokens,
                          .fed = 0,
                          .blocks = {}});
      ++next_;
    }
  }

  Result<bool> step() {
    MicroBatch batch{
        .id = MicroBatchId{++steps_}, .segments = {}, .released = std::move(released_)};
    released_.clear();
    std::vector<uint32_t> tokens;
    for (Sequence& sequence : running_) {
      size_t rows = sequence.log.size() - sequence.fed;
      if (options_.chunk != 0) rows = std::min<size_t>(rows, options_.chunk);
      rows = std::min(rows, pipeline_.options().rows_max - tokens.size());
      if (rows == 0) continue;
      while (sequence.blocks.size() * kKvBlockTokens < sequence.fed + rows) {
        if (free_.empty())
          return Error{ErrorCode::kResourceExhausted, "the test's kv blocks ran out"};
        sequence.blocks.push_back(free_.front());
        free_.pop_front();
      }
      const auto from = sequence.log.begin() + static_cast<ptrdiff_t>(sequence.fed);
      tokens.insert(tokens.end(), from, from + static_cast<ptrdiff_t>(rows));
      batch.segments.push_back({.sequence = sequence.id,
                                .position = static_cast<uint32_t>(sequence.fed),
                                .rows = static_cast<uint32_t>(rows),
                                .blocks = sequence.blocks,
                                .sample = sequence.fed + rows == sequence.log.size(),
                                .sampling = prompts_[sequence.prompt].sampling});
      sequence.fed += rows;
    }
    if (batch.segments.empty() && batch.released.empty()) return false;
    TROUPE_TRY(const StageOutput output, pipeline_.run(batch, tokens));
    for (const SampledToken& token : output.sampled) take(token);
    return true;
  }

  void take(const SampledToken& token) {
    const auto sequence = std::find_if(running_.begin(), running_.end(),
                                       [&](const Sequence& s) { return s.id == token.sequence; });
    Generation& generation = made_[sequence->prompt];
    generation.tokens.push_back(token.token);
    generation.digests.push_back(token.logits_digest);
    sequence->log.push_back(token.token);
    if (generation.tokens.size() < options_.tokens) return;
    free_.insert(free_.end(), sequence->blocks.begin(), sequence->blocks.end());
    released_.push_back(sequence->id);
    running_.erase(sequence);
  }

  Pipeline& pipeline_;
  std::span<const Prompt> prompts_;
  const GenerateOptions options_;
  std::vector<Generation> made_;
  std::vector<Sequence> running_;
  std::deque<uint32_t> free_;
  std::vector<SequenceId> released_;
  size_t next_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace

Result<std::vector<Generation>> generate(Pipeline& pipeline, std::span<const Prompt> prompts,
                                         const GenerateOptions& options) {
  return Driver(pipeline, prompts, options).run();
}

std::string first_difference(std::span<const Generation> a, std::span<const Generation> b) {
  if (a.size() != b.size()) return fmt::format("{} and {} generations", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].digests.size() != b[i].digests.size())
      return fmt::format("generation {}: {} and {} tokens", i, a[i].digests.size(),
                         b[i].digests.size());
    for (size_t t = 0; t < a[i].digests.size(); ++t)
      if (a[i].digests[t] != b[i].digests[t] || a[i].tokens[t] != b[i].tokens[t])
        return fmt::format("generation {}, token {}: {} (logits {:016x}) and {} (logits {:016x})",
                           i, t, a[i].tokens[t], a[i].digests[t], b[i].tokens[t], b[i].digests[t]);
  }
  return {};
}

}  // namespace troupe::test

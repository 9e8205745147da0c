#include "tests/sim/fake_stage.h"

#include <cstring>

#include "actors/model_registry.h"
#include "base/check.h"

namespace troupe::sim {
namespace {

uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t hash = (a * 0x9E3779B97F4A7C15) ^ (b + 0x7F4A7C15) * 0xC2B2AE3D27D4EB4F ^ (c << 17);
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9;
  return hash ^ (hash >> 32);
}

uint32_t token_of(uint64_t state, uint64_t seed, uint32_t vocabulary) {
  return static_cast<uint32_t>(mix(state, seed, 99) % vocabulary);
}

class FakeProgram final : public StageProgram {
 public:
  FakeProgram(uint32_t stage, uint32_t stages, uint32_t vocabulary, Plant plant)
      : stage_(stage), stages_(stages), vocabulary_(vocabulary), plant_(plant) {}

  Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t> tokens,
                          const SharedBuffer& hidden) override {
    TROUPE_TRY_VOID(check(batch.segments));
    const bool first = stage_ == 0, last = stage_ + 1 == stages_;
    const size_t rows = batch.rows();
    if (first ? tokens.size() != rows : hidden.size() != rows * sizeof(uint64_t))
      return Error{ErrorCode::kInvalidFrame, "input of the wrong size"};
    StageOutput output;
    if (!last && rows > 0) output.hidden = SharedBuffer::allocate(rows * sizeof(uint64_t));
    size_t row = 0;
    for (const Segment& segment : batch.segments) {
      std::vector<uint64_t>& held = held_[segment.sequence];
      for (uint32_t r = 0; r < segment.rows; ++r, ++row) {
        uint64_t input = 0;
        if (first)
          input = tokens[row];
        else
          std::memcpy(&input, hidden.data() + row * sizeof input, sizeof input);
        const uint32_t position = segment.position + r;
        uint64_t state = mix(position == 0 ? 1 : held[position - 1], input, stage_);
        if (plant_ == Plant::kBatchVariant) state += rows > 1 ? 1 : 0;
        if (position < held.size())
          TROUPE_CHECK(plant_ != Plant::kNone || held[position] == state,
                       "executing a row again gives what it gave before");
        else
          held.push_back(state);
        if (!last)
          std::memcpy(output.hidden.mutable_data() + row * sizeof state, &state, sizeof state);
      }
      if (last && segment.sample) {
        const uint32_t position = segment.position + segment.rows;
        output.sampled.push_back({segment.sequence, position,
                                  token_of(held[position - 1], segment.sampling.seed, vocabulary_),
                                  held[position - 1]});
      }
    }
    for (const SequenceId sequence : batch.released) held_.erase(sequence);
    return output;
  }
  void reset() override { held_.clear(); }
  uint32_t kv_length(SequenceId sequence) const override {
    const auto found = held_.find(sequence);
    return found == held_.end() ? 0 : static_cast<uint32_t>(found->second.size());
  }
  std::vector<SequenceHolding> holdings() const override {
    std::vector<SequenceHolding> all;
    for (const auto& [sequence, states] : held_)
      all.push_back({sequence, static_cast<uint32_t>(states.size()), {0}});
    return all;
  }
  uint32_t kv_row_bytes() const override { return sizeof(uint64_t); }
  Result<SharedBuffer> read_kv(std::span<const Segment> segments) const override {
    std::vector<uint64_t> states;
    for (const Segment& segment : segments) {
      const auto found = held_.find(segment.sequence);
      if (found == held_.end() || segment.position + segment.rows > found->second.size())
        return Error{ErrorCode::kConflict, "rows that are not held"};
      states.insert(states.end(), found->second.begin() + segment.position,
                    found->second.begin() + segment.position + segment.rows);
    }
    SharedBuffer rows = SharedBuffer::allocate(states.size() * sizeof(uint64_t));
    std::memcpy(rows.mutable_data(), states.data(), rows.size());
    return rows;
  }
  Result<void> write_kv(std::span<const Segment> segments, ByteSpan rows) override {
    TROUPE_TRY_VOID(check(segments));
    for (const Segment& segment : segments) {
      std::vector<uint64_t>& held = held_[segment.sequence];
      for (uint32_t r = 0; r < segment.rows; ++r, rows = rows.subspan(sizeof(uint64_t))) {
        uint64_t state = 0;
        std::memcpy(&state, rows.data(), sizeof state);
        if (plant_ == Plant::kWrongStandby) state ^= 1;
        if (segment.position + r == held.size()) held.push_back(state);
        TROUPE_CHECK(plant_ != Plant::kNone || held[segment.position + r] == state,
                     "a standby is sent what its stage holds");
      }
    }
    return {};
  }
  StageMemory memory() const override { return {.weight_bytes = 1, .kv_bytes = 1}; }

 private:
  Result<void> check(std::span<const Segment> segments) const {
    for (const Segment& segment : segments)
      if (segment.position > kv_length(segment.sequence))
        return Error{ErrorCode::kConflict, "a gap"};
    return {};
  }

  const uint32_t stage_, stages_, vocabulary_;
  const Plant plant_;
  std::map<SequenceId, std::vector<uint64_t>> held_;
};

}  // namespace

std::vector<uint32_t> expected_tokens(std::vector<uint32_t> prompt, uint64_t seed, uint32_t count,
                                      uint32_t stages, uint32_t vocabulary) {
  std::vector<uint64_t> before(stages, 1);
  std::vector<uint32_t> generated;
  for (size_t position = 0; generated.size() < count; ++position) {
    uint64_t value =
        position < prompt.size() ? prompt[position] : generated[position - prompt.size()];
    for (uint32_t stage = 0; stage < stages; ++stage)
      value = before[stage] = mix(before[stage], value, stage);
    if (position + 1 >= prompt.size()) generated.push_back(token_of(value, seed, vocabulary));
  }
  return generated;
}

ProgramMaker fake_programs(Plant plant) {
  return [plant](const StageSpec& spec,
                 const ModelPtr& model) -> Result<std::unique_ptr<StageProgram>> {
    return std::unique_ptr<StageProgram>(
        std::make_unique<FakeProgram>(spec.stage, spec.stages, model->config.vocabulary, plant));
  };
}

}  // namespace troupe::sim

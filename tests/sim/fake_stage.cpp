#include "tests/sim/fake_stage.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "actors/model_registry.h"

namespace troupe::sim {
namespace {

constexpr uint32_t kRowsOfBlock = 64;

uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t hash = (a * 0x9E3779B97F4A7C15) ^ (b + 0x7F4A7C15) * 0xC2B2AE3D27D4EB4F ^ (c << 17);
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9;
  return hash ^ (hash >> 32);
}

uint32_t token_of(uint64_t state, uint64_t seed, uint32_t vocabulary) {
  return static_cast<uint32_t>(mix(state, seed, 99) % vocabulary);
}

// Rows live in blocks, as models/kv_cache has them: a sequence whose block another one claims is
// forgotten.
class FakeCache {
 public:
  explicit FakeCache(uint32_t blocks) : memory_(blocks), owners_(blocks) {}

  uint32_t length(SequenceId sequence) const {
    const auto found = held_.find(sequence);
    return found == held_.end() ? 0 : found->second.length;
  }
  bool covers(const Segment& segment) const {
    const bool known = std::all_of(segment.blocks.begin(), segment.blocks.end(),
                                   [this](uint32_t block) { return block < owners_.size(); });
    return known && uint64_t{segment.position} + segment.rows <=
                        uint64_t{segment.blocks.size()} * kRowsOfBlock;
  }
  // Positions that are still held under this table.
  uint32_t length_under(SequenceId sequence, const std::vector<uint32_t>& table) const {
    const auto found = held_.find(sequence);
    if (found == held_.end()) return 0;
    const std::vector<uint32_t>& known = found->second.table;
    size_t same = 0;
    while (same < known.size() && same < table.size() && known[same] == table[same]) ++same;
    return std::min(found->second.length, static_cast<uint32_t>(same) * kRowsOfBlock);
  }
  void claim(SequenceId sequence, const std::vector<uint32_t>& table) {
    const auto found = held_.find(sequence);
    if (found != held_.end()) {
      const std::vector<uint32_t>& known = found->second.table;
      if (table.size() <= known.size() && std::equal(table.begin(), table.end(), known.begin()))
        return;
    }
    const uint32_t kept = length_under(sequence, table);
    for (const uint32_t block : table)
      if (owners_[block] && owners_[block] != sequence) forget(owners_[block]);
    forget(sequence);
    for (const uint32_t block : table) owners_[block] = sequence;
    held_[sequence] = {kept, table};
  }
  uint64_t& row(SequenceId sequence, uint32_t position) {
    return memory_[held_.at(sequence).table[position / kRowsOfBlock]][position % kRowsOfBlock];
  }
  uint64_t row(SequenceId sequence, uint32_t position) const {
    return memory_[held_.at(sequence).table[position / kRowsOfBlock]][position % kRowsOfBlock];
  }
  void append(SequenceId sequence, uint64_t state) {
    Held& held = held_.at(sequence);
    if (held.length / kRowsOfBlock >= held.table.size()) return;  // only with a planted bug
    row(sequence, held.length) = state;
    ++held.length;
  }
  void forget(SequenceId sequence) {
    const auto found = held_.find(sequence);
    if (found == held_.end()) return;
    for (const uint32_t block : found->second.table)
      if (owners_[block] == sequence) owners_[block] = SequenceId{};
    held_.erase(found);
  }
  void clear() {
    while (!held_.empty()) forget(held_.begin()->first);
  }
  std::vector<SequenceHolding> holdings() const {
    std::vector<SequenceHolding> all;
    for (const auto& [sequence, held] : held_)
      if (held.length > 0) all.push_back({sequence, held.length, held.table});
    return all;
  }
  size_t sequences() const { return held_.size(); }

 private:
  struct Held {
    uint32_t length = 0;
    std::vector<uint32_t> table;
  };
  std::vector<std::array<uint64_t, kRowsOfBlock>> memory_;
  std::vector<SequenceId> owners_;  // [block]
  std::map<SequenceId, Held> held_;
};

class FakeProgram final : public StageProgram {
 public:
  FakeProgram(const StageSpec& spec, uint32_t vocabulary, const FakeOptions& options)
      : stage_(spec.stage),
        stages_(spec.stages),
        vocabulary_(vocabulary),
        options_(options),
        cache_(spec.kv_blocks) {}
  ~FakeProgram() override { options_.witness->ended(options_.life); }

  Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t> tokens,
                          const SharedBuffer& hidden) override {
    TROUPE_TRY_VOID(check(batch.segments));
    const size_t rows = batch.rows();
    if (first() ? tokens.size() != rows : hidden.size() != rows * sizeof(uint64_t))
      return Error{ErrorCode::kInvalidFrame, "input of the wrong size"};
    StageOutput output;
    if (!last() && rows > 0) output.hidden = SharedBuffer::allocate(rows * sizeof(uint64_t));
    size_t row = 0;
    for (const Segment& segment : batch.segments) {
      cache_.claim(segment.sequence, segment.blocks);
      for (uint32_t r = 0; r < segment.rows; ++r, ++row) {
        uint64_t input = 0;
        if (first())
          input = tokens[row];
        else
          std::memcpy(&input, hidden.data() + row * sizeof input, sizeof input);
        const uint64_t state = execute(segment, segment.position + r, input, rows);
        if (!last())
          std::memcpy(output.hidden.mutable_data() + row * sizeof state, &state, sizeof state);
      }
      if (last() && segment.sample) output.sampled.push_back(sample(segment));
    }
    for (const SequenceId sequence : batch.released) cache_.forget(sequence);
    tell();
    return output;
  }
  void reset() override {
    if (options_.plant != Plant::kKeptOverReset) cache_.clear();
    tell();
  }
  uint32_t kv_length(SequenceId sequence) const override {
    return cache_.length(sequence) + (options_.plant == Plant::kWatermark && stands_by_ ? 1 : 0);
  }
  std::vector<SequenceHolding> holdings() const override { return cache_.holdings(); }
  uint32_t kv_row_bytes() const override { return sizeof(uint64_t); }

  Result<SharedBuffer> read_kv(std::span<const Segment> segments) const override {
    std::vector<uint64_t> states;
    for (const Segment& segment : segments) {
      if (segment.position + segment.rows > cache_.length(segment.sequence))
        return Error{ErrorCode::kConflict, "rows that are not held"};
      for (uint32_t r = 0; r < segment.rows; ++r)
        states.push_back(cache_.row(segment.sequence, segment.position + r));
    }
    SharedBuffer rows = SharedBuffer::allocate(states.size() * sizeof(uint64_t));
    std::memcpy(rows.mutable_data(), states.data(), rows.size());
    return rows;
  }
  Result<void> write_kv(std::span<const Segment> segments, ByteSpan rows) override {
    TROUPE_TRY_VOID(check(segments));
    stands_by_ = true;
    for (const auto& apply : std::exchange(unapplied_, {})) apply();
    for (const Segment& segment : segments) {
      cache_.claim(segment.sequence, segment.blocks);
      for (uint32_t r = 0; r < segment.rows; ++r, rows = rows.subspan(sizeof(uint64_t))) {
        uint64_t state = 0;
        std::memcpy(&state, rows.data(), sizeof state);
        if (options_.plant == Plant::kWrongStandby) state ^= 1;
        const uint32_t position = segment.position + r;
        if (position == cache_.length(segment.sequence))
          append(segment.sequence, later(segment.sequence, position, state));
        else if (cache_.row(segment.sequence, position) != state)
          broken("I7: a standby is sent other rows than it has");
      }
    }
    tell();
    return {};
  }
  StageMemory memory() const override { return {.weight_bytes = 1, .kv_bytes = 1}; }

 private:
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }
  void tell() const { options_.witness->holds(options_.life, stage_, cache_.sequences()); }
  void broken(const std::string& promise) const {
    if (options_.plant == Plant::kNone) options_.witness->broken(promise);
  }

  void append(SequenceId sequence, uint64_t state) {
    if (options_.plant == Plant::kNone)
      options_.witness->row(stage_, cache_.length(sequence), state);
    cache_.append(sequence, state);
    options_.witness->stored(options_.life, sequence, cache_.length(sequence));
  }
  // What is stored now; with Plant::kEarlyAck the row itself follows with the next rows.
  uint64_t later(SequenceId sequence, uint32_t position, uint64_t state) {
    if (options_.plant != Plant::kEarlyAck) return state;
    unapplied_.push_back([this, sequence, position, state] {
      if (position < cache_.length(sequence)) cache_.row(sequence, position) = state;
    });
    return 0;
  }

  Result<void> check(std::span<const Segment> segments) const {
    for (const Segment& segment : segments) {
      if (!cache_.covers(segment))
        return Error{ErrorCode::kInvalidFrame, "blocks that do not cover the rows"};
      // One may go on with the sequence of the segment before it.
      const Segment* before = &segment == segments.data() ? nullptr : &segment - 1;
      const bool goes_on = before != nullptr && before->sequence == segment.sequence &&
                           segment.position <= before->position + before->rows;
      if (!goes_on && segment.position > cache_.length_under(segment.sequence, segment.blocks))
        return Error{ErrorCode::kConflict, "a gap"};
    }
    return {};
  }

  uint64_t execute(const Segment& segment, uint32_t position, uint64_t input, size_t rows) {
    const SequenceId sequence = segment.sequence;
    uint64_t state = mix(position == 0 ? 1 : cache_.row(sequence, position - 1), input, stage_);
    if (options_.plant == Plant::kBatchVariant) state += rows > 1 ? 1 : 0;
    if (position == cache_.length(sequence) || options_.plant == Plant::kNoPositions)
      append(sequence, state);
    else if (cache_.row(sequence, position) != state)
      broken("I5: executing a row again gives other bytes");
    return state;
  }

  SampledToken sample(const Segment& segment) {
    const uint32_t position = segment.position + segment.rows;
    const uint64_t state = cache_.row(segment.sequence, position - 1);
    uint64_t seed = segment.sampling.seed;
    if (options_.plant == Plant::kDrawCount) seed += draws_++;
    return {segment.sequence, position, token_of(state, seed, vocabulary_), state};
  }

  const uint32_t stage_, stages_, vocabulary_;
  const FakeOptions options_;
  uint64_t draws_ = 0;
  FakeCache cache_;
  bool stands_by_ = false;
  std::vector<std::function<void()>> unapplied_;
};

}  // namespace

UndisturbedRun undisturbed_run(const std::vector<uint32_t>& prompt, uint64_t seed, uint32_t count,
                               uint32_t stages, uint32_t vocabulary) {
  UndisturbedRun run;
  run.rows.resize(stages);
  std::vector<uint64_t> before(stages, 1);
  std::vector<uint32_t>& generated = run.tokens;
  for (size_t position = 0; generated.size() < count; ++position) {
    uint64_t value =
        position < prompt.size() ? prompt[position] : generated[position - prompt.size()];
    for (uint32_t stage = 0; stage < stages; ++stage) {
      value = before[stage] = mix(before[stage], value, stage);
      run.rows[stage].push_back(value);
    }
    if (position + 1 >= prompt.size()) generated.push_back(token_of(value, seed, vocabulary));
  }
  return run;
}

ProgramMaker fake_programs(FakeOptions options) {
  return [options](const StageSpec& spec,
                   const ModelPtr& model) -> Result<std::unique_ptr<StageProgram>> {
    if (options.fails()) return Error{ErrorCode::kResourceExhausted, "no memory for it"};
    return std::unique_ptr<StageProgram>(
        std::make_unique<FakeProgram>(spec, model->config.vocabulary, options));
  };
}

}  // namespace troupe::sim

// A model and a stage for tests of the batcher. The token after a prefix is a hash of the prefix;
// the stage remembers tokens in KV blocks and reads the prefix back through the block table, so a
// block that is shared, freed too early or missing from a table shows as a wrong token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/logic/batching.h"

namespace troupe::test {

class FakeModel {
 public:
  explicit FakeModel(uint32_t vocabulary) : vocabulary_(vocabulary) {}

  uint32_t token_after(const std::vector<uint32_t>& prefix, uint64_t seed) const {
    return static_cast<uint32_t>(digest(prefix, seed) % vocabulary_);
  }
  uint64_t digest(const std::vector<uint32_t>& prefix, uint64_t seed) const {
    uint64_t hash = 0xCBF29CE484222325 ^ seed;  // FNV-1a over words, with a final mix
    for (const uint32_t token : prefix) hash = (hash ^ token) * 0x100000001B3;
    hash ^= hash >> 31;
    return hash * 0x9E3779B97F4A7C15 | 1;
  }

  // What an undisturbed run generates: ends behind a stop token, or with `count` tokens.
  std::vector<uint32_t> generate(std::vector<uint32_t> log, uint64_t seed, uint32_t count,
                                 const std::vector<uint32_t>& stops) const {
    std::vector<uint32_t> generated;
    while (generated.size() < count) {
      const uint32_t token = token_after(log, seed);
      log.push_back(token);
      generated.push_back(token);
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    }
    return generated;
  }

 private:
  uint32_t vocabulary_;
};

struct Answer {
  MicroBatchId id;
  std::vector<SampledRow> rows;
  std::string refusal;  // not empty: refused
};

class FakeStage {
 public:
  FakeStage(FakeModel model, uint32_t blocks)
      : model_(model), memory_(size_t{blocks} * BlockPool::kBlockPositions) {}

  // Position-addressed like a real one: a gap is refused, rows that are held are read and not
  // written.
  Answer run(const PlannedBatch& batch) {
    for (const PlannedSegment& segment : batch.segments)
      if (segment.position > length_[segment.sequence]) return {batch.id, {}, "gap"};
    Answer answer{batch.id, {}, {}};
    for (const PlannedSegment& segment : batch.segments) {
      const auto rows = static_cast<uint32_t>(segment.tokens.size());
      uint32_t& length = length_[segment.sequence];
      for (uint32_t row = 0; row < rows; ++row) {
        const uint32_t position = segment.position + row;
        if (position < length) continue;
        cell(segment, position) = segment.tokens[row];
        length = position + 1;
      }
      if (!segment.sample) continue;
      std::vector<uint32_t> prefix;
      for (uint32_t position = 0; position < segment.position + rows; ++position)
        prefix.push_back(cell(segment, position));
      answer.rows.push_back({segment.sequence, segment.position + rows,
                             model_.token_after(prefix, segment.sampling.seed),
                             model_.digest(prefix, segment.sampling.seed)});
    }
    for (const SequenceId sequence : batch.released) length_.erase(sequence);
    return answer;
  }

  void reset() { length_.clear(); }
  size_t sequences() const { return length_.size(); }

 private:
  uint32_t& cell(const PlannedSegment& segment, uint32_t position) {
    const uint32_t block = segment.blocks.at(position / BlockPool::kBlockPositions);
    return memory_.at(size_t{block} * BlockPool::kBlockPositions +
                      position % BlockPool::kBlockPositions);
  }

  FakeModel model_;
  std::vector<uint32_t> memory_;
  std::map<SequenceId, uint32_t> length_;
};

}  // namespace troupe::test

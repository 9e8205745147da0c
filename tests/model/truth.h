// What every row and every token must be: the arithmetic of the model, and an undisturbed run of
// it. A row of a stage depends on the stage's row before it and on its input, so a stale, missing
// or foreign row anywhere shows in everything behind it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace troupe::model {

inline uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t hash = (a * 0x9E3779B97F4A7C15) ^ (b + 0x7F4A7C15) * 0xC2B2AE3D27D4EB4F ^ (c << 17);
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9;
  return hash ^ (hash >> 32);
}

// Row p of a stage, from its row p - 1 (position 0: none) and its input.
inline uint64_t next_row(uint32_t stage, uint64_t row_before, uint64_t input) {
  return mix(row_before, input, stage + 1);
}
inline uint32_t token_of(uint64_t row) {
  return static_cast<uint32_t>(mix(row, 99, 7));
}

class Truth {
 public:
  // Request r has the id "r" and, because all wait before the first view serves, the sequence
  // r + 1.
  Truth(uint32_t stages, uint32_t requests, uint32_t prompt, uint32_t tokens) : prompt_(prompt) {
    for (uint32_t request = 0; request < requests; ++request) {
      Run run{{}, std::vector<std::vector<uint64_t>>(stages)};
      for (uint32_t position = 0; position < prompt; ++position)
        run.tokens.push_back(1000 * (request + 1) + position);
      for (uint32_t position = 0; position + 1 < prompt + tokens; ++position) {
        uint64_t value = run.tokens[position];
        for (uint32_t stage = 0; stage < stages; ++stage) {
          auto& rows = run.rows[stage];
          value = next_row(stage, position == 0 ? 0 : rows.back(), value);
          rows.push_back(value);
        }
        if (position + 1 >= prompt) run.tokens.push_back(token_of(value));
      }
      runs_.push_back(std::move(run));
    }
  }

  std::vector<uint32_t> prompt(uint32_t request) const {
    const auto& tokens = runs_[request].tokens;
    return {tokens.begin(), tokens.begin() + prompt_};
  }
  uint32_t token(uint32_t request, uint32_t index) const {
    return runs_[request].tokens.at(prompt_ + index);
  }
  bool is_row(SequenceId sequence, uint32_t stage, uint32_t position, uint64_t row) const {
    const uint64_t request = sequence.value - 1;
    if (request >= runs_.size()) return false;
    const auto& rows = runs_[request].rows[stage];
    return position < rows.size() && rows[position] == row;
  }

 private:
  struct Run {
    std::vector<uint32_t> tokens;             // prompt and generated
    std::vector<std::vector<uint64_t>> rows;  // [stage][position]
  };
  uint32_t prompt_;
  std::vector<Run> runs_;
};

}  // namespace troupe::model

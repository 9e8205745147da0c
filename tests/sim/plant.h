// Bugs planted on purpose, in wrappers around the system, to see that a simulation finds them. Not
// one of them is in the system itself.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::sim {

enum class Plant : uint8_t {
  kNone,
  kBatchVariant,   // a row's result depends on who else is in its micro-batch
  kWrongStandby,   // a standby does not store what it was sent
  kNoPositions,    // a stage appends a row wherever it belongs
  kDrawCount,      // the sampler's draw is keyed by how often it drew, not by position
  kKeptOverReset,  // a stage keeps its sequences although another batcher numbers anew
  kNoViewFence,    // frames of old views count as if they were of the newest
  kNoDigest,       // a damaged payload passes for a sound one
  kAnySwap,        // the ledger says yes to a view whatever the newest one is
  kEarlyRecord,    // the ledger says yes to a record before it has it
  kCursor,         // a stream goes on one token before its cursor
};
inline constexpr Plant kPlants[] = {
    Plant::kBatchVariant,  Plant::kWrongStandby, Plant::kNoPositions, Plant::kDrawCount,
    Plant::kKeptOverReset, Plant::kNoViewFence,  Plant::kNoDigest,    Plant::kAnySwap,
    Plant::kEarlyRecord,   Plant::kCursor};

inline const char* to_string(Plant plant) {
  switch (plant) {
    case Plant::kNone:
      return "none";
    case Plant::kBatchVariant:
      return "batch-variant";
    case Plant::kWrongStandby:
      return "wrong-standby";
    case Plant::kNoPositions:
      return "no-positions";
    case Plant::kDrawCount:
      return "draw-count";
    case Plant::kKeptOverReset:
      return "kept-over-reset";
    case Plant::kNoViewFence:
      return "no-view-fence";
    case Plant::kNoDigest:
      return "no-digest";
    case Plant::kAnySwap:
      return "any-swap";
    case Plant::kEarlyRecord:
      return "early-record";
    case Plant::kCursor:
      return "cursor";
  }
  return "unknown";
}

}  // namespace troupe::sim

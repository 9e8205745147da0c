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
  kWatermark,      // a standby acknowledges one row more than it has
  kEarlyAck,       // a standby acknowledges rows before it has applied them
  kNoPositions,    // a stage appends a row wherever it belongs: what comes twice is there twice
  kDrawCount,      // the sampler's draw is keyed by how often it drew, not by position
  kKeptOverReset,  // a stage keeps its sequences although another batcher numbers anew
  kNoViewFence,    // frames of old views count as if they were of the newest
  kZombie,         // frames of a life that was replaced count as its successor's
  kNoDigest,       // a damaged payload passes for a sound one
  kAnySwap,        // the ledger says yes to a view whatever the newest one is
  kEarlyRecord,    // the ledger says yes to a record before it has it
  kCursor,         // a stream goes on one token before its cursor
  kTriedNode,      // who carries out orders goes to the node that refused the stage before
  kJournalFreed,   // journals that are gone (journal_bytes) are said to be whole
};
// To come, when journals are trimmed by watermarks: the minimum over the own successor only.
inline constexpr Plant kPlants[] = {
    Plant::kBatchVariant, Plant::kWrongStandby, Plant::kWatermark,     Plant::kEarlyAck,
    Plant::kNoPositions,  Plant::kDrawCount,    Plant::kKeptOverReset, Plant::kNoViewFence,
    Plant::kZombie,       Plant::kNoDigest,     Plant::kAnySwap,       Plant::kEarlyRecord,
    Plant::kCursor,       Plant::kTriedNode,    Plant::kJournalFreed};

inline const char* to_string(Plant plant) {
  switch (plant) {
    case Plant::kNone:
      return "none";
    case Plant::kBatchVariant:
      return "batch-variant";
    case Plant::kWrongStandby:
      return "wrong-standby";
    case Plant::kWatermark:
      return "watermark";
    case Plant::kEarlyAck:
      return "early-ack";
    case Plant::kNoPositions:
      return "no-positions";
    case Plant::kDrawCount:
      return "draw-count";
    case Plant::kKeptOverReset:
      return "kept-over-reset";
    case Plant::kNoViewFence:
      return "no-view-fence";
    case Plant::kZombie:
      return "zombie";
    case Plant::kNoDigest:
      return "no-digest";
    case Plant::kAnySwap:
      return "any-swap";
    case Plant::kEarlyRecord:
      return "early-record";
    case Plant::kCursor:
      return "cursor";
    case Plant::kTriedNode:
      return "tried-node";
    case Plant::kJournalFreed:
      return "journal-freed";
  }
  return "unknown";
}

}  // namespace troupe::sim

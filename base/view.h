// The numbered description of a replica: who holds each stage, in which life. Views of a deployment
// are totally ordered; the ledger installs view v+1 by compare-and-swap on v; receivers drop what
// is not of theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace troupe {

// Layers [first, last) of a model. Stage 0 also embeds; the last stage also holds the head and
// samples.
struct LayerRange {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t count() const { return last - first; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Who follows the stages of a deployment, to take a seat that is lost.
enum class StandbyPolicy : uint8_t {
  kNone,   // nobody: what is lost is computed again, from the journal before it
  kKv,     // a standby of each stage, which is sent the rows of its KV cache
  kInput,  // a standby of each stage, which is sent its input, executes it, too, and compares
};

inline const char* to_string(StandbyPolicy policy) {
  switch (policy) {
    case StandbyPolicy::kNone:
      return "none";
    case StandbyPolicy::kKv:
      return "kv";
    case StandbyPolicy::kInput:
      return "input";
  }
  return "unknown";
}

inline std::optional<StandbyPolicy> standby_policy(std::string_view word) {
  for (const auto policy : {StandbyPolicy::kNone, StandbyPolicy::kKv, StandbyPolicy::kInput})
    if (word == to_string(policy)) return policy;
  return std::nullopt;
}

// One stage of a view.
struct Seat {
  NodeId node;
  Incarnation node_incarnation;
  Incarnation incarnation;  // of the stage actor
  LayerRange layers;
  std::vector<std::byte> data_address;  // of its process's transport, opaque
  uint64_t process = 0;                 // operating system's process id there, for people
};

// Who follows a stage and can take its seat at once.
struct Standby {
  uint32_t stage = 0;
  Seat seat;
  StandbyPolicy policy = StandbyPolicy::kKv;  // how it follows; never kNone
};

struct View {
  std::string deployment;
  ViewNumber number;
  Incarnation batcher;                     // where the last stage sends sampled tokens
  std::vector<std::byte> batcher_address;  // of its process's transport
  std::vector<Seat> seats;                 // [stage]; at least one
  std::vector<Standby> standbys;           // ascending by stage, at most one a stage
};

}  // namespace troupe

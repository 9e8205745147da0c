// How large the model is, what may fail in it, and the faults that can be planted in it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace troupe::model {

enum class Plant : uint8_t {
  kNone,
  kNoViewCheck,           // a stage takes frames of any view
  kJournalFreedAtSend,    // a replay takes its rows out of the journal
  kWatermarkBeforeApply,  // rows count as stored when they are sent
  kClaimsAll,             // a new life says it holds what the one before it held
  kLostNews,              // nobody tells the scheduler that a stage died
};

struct Bounds {
  uint32_t stages = 3, requests = 2, prompt = 1, tokens = 3;
  uint32_t nodes = 4;       // one more than stages: a place to go to
  uint32_t failures = 2;    // of all kinds together
  bool restarts = true;     // a life ends, another comes up in its place, without its memory
  bool kept = true;         // … with its KV cache
  bool losses = true;       // a life ends for good: its stage goes elsewhere
  bool zombies = true;      // a node is given up though it lives, and goes on
  bool lost_frames = true;  // a frame is lost on its way
  bool standbys = false;
  uint32_t journal_rows = 1000;  // of all sequences together; 0: no journal
  Plant plant = Plant::kNone;
};

// An invariant does not hold. The search stops and tells how it came to it.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw Violation(what);
}

}  // namespace troupe::model

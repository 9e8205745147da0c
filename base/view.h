// The numbered description of a replica: who holds each stage, in which life. Views of a deployment
// are totally ordered; the ledger installs view v+1 by compare-and-swap on v; receivers drop what
// is not of theirs.
#pragma once

#include <cstdint>
#include <string>
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

// One stage of a view.
struct Seat {
  NodeId node;
  Incarnation node_incarnation;
  Incarnation incarnation;  // of the stage actor
  LayerRange layers;
  std::vector<std::byte> data_address;  // of its process's transport, opaque
  uint64_t process = 0;                 // operating system's process id there, for people
};

struct View {
  std::string deployment;
  ViewNumber number;
  Incarnation batcher;                     // where the last stage sends sampled tokens
  std::vector<std::byte> batcher_address;  // of its process's transport
  std::vector<Seat> seats;                 // [stage]; at least one
};

}  // namespace troupe

// The life of one replica: placing its stages, installing views, and putting it together again after losses. A value
// machine: facts go in, actions come out; the scheduler actor carries them out and reports back. Every step is keyed by
// (view, stage) and may be repeated, so a failure during recovery only starts it again in a higher view (recovery.md I8).
//
// States:   waiting (too few nodes) -> loading (stages assigned, not all ready) -> proposing (compare-and-swap at the
// ledger) -> installing (members acknowledge) -> serving. Any loss leads back to loading with the survivors' stages kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/logic/placement.h"  // NodeFacts
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "base/view.h"

namespace troupe {

struct ReplicaSpec {
  std::string deployment;
  uint32_t layers = 0;                      // of the model
  uint64_t layer_bytes = 0;                 // weights and KV of one layer
  uint64_t embedding_bytes = 0;             // extra in the first stage
  uint64_t head_bytes = 0;                  // extra in the last stage
  // Time of one step, in any unit, to cut the model into equal stages; layer_cost 0: memory stands for time.
  uint64_t layer_cost = 0, embedding_cost = 0, head_cost = 0;
  uint32_t stages = 1;                      // 1 to layers
  std::vector<uint32_t> layer_split;        // first layer of each stage, ascending from 0; empty: even by memory
  uint32_t nodes_expected = 1;              // wait for so many before the first placement …
  Duration settle_max = 5s;                 // … but not longer than this after the first tick
  Duration install_max = 2s;                // a member that has not acknowledged by then is replaced
  Duration load_max = 120s;                 // a stage that is not ready by then is placed elsewhere
};

struct AssignAction {
  NodeId node;
  Incarnation node_incarnation;
  uint32_t stage = 0;
  LayerRange layers;
};
struct StopAction {          // a stage that belongs to nobody any more, on a node that lives
  NodeId node;
  uint32_t stage = 0;
};
struct ProposeAction { View view; };   // compare-and-swap view.number - 1 -> view.number; answer with on_committed/on_conflict
struct InstallAction { View view; };   // to every seat, then on_installed for each
struct ServeAction { View view; };     // all have it: the batcher may start
struct PauseAction { std::string why; };   // the batcher must stop until the next ServeAction
struct StuckAction { Error why; };     // nothing can be done until a node joins; requests get kUnavailable

using ReplicaAction = std::variant<AssignAction, StopAction, ProposeAction, InstallAction, ServeAction, PauseAction, StuckAction>;
using ReplicaActions = std::vector<ReplicaAction>;

enum class ReplicaState : uint8_t { kWaiting, kLoading, kProposing, kInstalling, kServing };
const char* to_string(ReplicaState state);

// One line of a replica's history, for status and logs.
struct ReplicaEvent {
  Instant at;
  std::string text;   // "view 3 serves: stage 1 moved from node-2 to node-3 (node-2 was lost: connection reset)"
};

class Replica {
 public:
  // `last` is the ledger's newest view of the deployment (number 0: there was none).
  Replica(ReplicaSpec spec, ViewNumber last, Incarnation batcher, std::vector<std::byte> batcher_address);

  // The nodes that are members now; call with the full list whenever it changed. A node that is gone, or has a new
  // incarnation, has lost its stages.
  ReplicaActions on_nodes(const std::vector<NodeFacts>& nodes, const std::string& why, Instant now);
  // A stage of ours became ready (first time or restarted in place).
  ReplicaActions on_stage_ready(uint32_t stage, const Seat& seat, Instant now);
  // A stage ended. If its supervisor restarts it, its seat waits for the next on_stage_ready; if not, it is placed elsewhere
  // (on another node if there is one).
  ReplicaActions on_stage_lost(uint32_t stage, const NodeId& node, Incarnation incarnation, bool restarting,
                               const std::string& why, Instant now);
  // The node could not load it (no such file, no memory): that node is not asked again for this stage until it rejoins.
  ReplicaActions on_assign_failed(uint32_t stage, const NodeId& node, const Error& why, Instant now);
  ReplicaActions on_committed(ViewNumber number, Instant now);
  ReplicaActions on_conflict(ViewNumber newest, Instant now);   // the ledger's newest view is another: propose above it
  ReplicaActions on_installed(uint32_t stage, ViewNumber number, Instant now);
  ReplicaActions on_tick(Instant now);    // deadlines; call at least every 100 ms

  ReplicaState state() const;
  const View& view() const;               // the newest proposed or installed one; seats may be empty before the first
  uint32_t faults() const;                // losses of stages or nodes survived so far
  const std::vector<ReplicaEvent>& history() const;   // newest last, at most 64

 private:
  // The implementer chooses the private parts.
};

}  // namespace troupe

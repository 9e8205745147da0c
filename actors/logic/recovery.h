// The life of one replica: placing its stages, installing views, and putting it together again
// after losses. A value machine: facts go in, actions come out; the scheduler actor carries them
// out and reports back. Every step is keyed by (view, stage) and may be repeated, so a failure
// during recovery only starts it again in a higher view (recovery.md I8).
//
// States:   waiting (too few nodes, or too little room) -> loading (stages assigned, not all ready)
// -> proposing (compare-and-swap at the ledger) -> installing (members acknowledge) -> serving. Any
// loss leads back to loading with the survivors' stages kept. A planned move (off a draining node,
// or asked for by an operator) loads the successor first and goes on serving meanwhile. A stage
// that has a standby does not load: the standby takes its seat.
//
// A stage that moves from node to node and is lost wherever it comes up, more than kMovesMax times
// without a view that served for kSuccess between, takes the replica along: it rests for a while.
// Requests keep their records and go on later; new ones are refused meanwhile.
//
// View numbers: every proposal with other content gets a higher number, until the ledger says how
// far it really is. The ledger must answer proposals in the order they were asked; a lost answer is
// made up for by asking again.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
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
  uint32_t layers = 0;           // of the model
  uint64_t layer_bytes = 0;      // weights and KV of one layer
  uint64_t embedding_bytes = 0;  // extra in the first stage
  uint64_t head_bytes = 0;       // extra in the last stage
  uint64_t journal_bytes = 0;    // extra in all stages but the last
  // Time of one step, in any unit, to cut the model into equal stages; layer_cost 0: memory stands
  // for time.
  uint64_t layer_cost = 0, embedding_cost = 0, head_cost = 0;
  uint32_t stages = 1;  // 1 to layers
  std::vector<uint32_t>
      layer_split;  // first layer of each stage, ascending from 0; empty: even by memory
  uint32_t nodes_expected = 1;  // wait for so many before the first placement …
  Duration settle_max = 5s;     // … but not longer than this after the first tick
  Duration install_max = 2s;    // a member that has not acknowledged by then is replaced
  Duration load_max = 120s;     // a stage that is not ready by then is placed elsewhere
  StandbyPolicy standby = StandbyPolicy::kNone;
};

struct AssignAction {
  NodeId node;
  Incarnation node_incarnation;
  uint32_t stage = 0;
  LayerRange layers;
  bool standby = false;  // to follow the stage, not to take its seat
  uint64_t attempt = 0;  // for on_assign_failed
};
struct StopAction {  // a stage that belongs to nobody any more, on a node that lives; it may have
                     // ended already
  NodeId node;
  uint32_t stage = 0;
};
struct ProposeAction {
  View view;
};  // compare-and-swap view.number - 1 -> view.number; answer with on_committed/on_conflict
struct InstallAction {
  View view;
};  // to every seat, then on_installed for each
struct ServeAction {
  View view;
};  // all have it: the batcher may start
struct PauseAction {
  std::string why;
  // The stage that ended by itself, if one did: what it was running may have been the cause.
  std::optional<uint32_t> crashed = std::nullopt;
};  // the batcher must stop until the next ServeAction
struct StuckAction {
  Error why;
};  // nothing can be done until a node joins; requests get kUnavailable

using ReplicaAction = std::variant<AssignAction, StopAction, ProposeAction, InstallAction,
                                   ServeAction, PauseAction, StuckAction>;
using ReplicaActions = std::vector<ReplicaAction>;

enum class ReplicaState : uint8_t { kWaiting, kLoading, kProposing, kInstalling, kServing };
const char* to_string(ReplicaState state);

// One line of a replica's history, for status and logs.
struct ReplicaEvent {
  uint64_t number = 0;  // 1, 2, …
  bool told = false;    // it repeats what the replica was told
  Instant at;
  std::string text;  // "view 3 serves: stage 1 moved from node-2 to node-3 (node-2 was lost:
                     // connection reset)"
};

class Replica {
 public:
  // `last` is the ledger's newest view of the deployment (number 0: there was none).
  Replica(ReplicaSpec spec, ViewNumber last, Incarnation batcher,
          std::vector<std::byte> batcher_address);

  // The nodes that are members now; call with the full list whenever it changed. A node that is
  // gone, or has a new incarnation, has lost its stages.
  ReplicaActions on_nodes(const std::vector<NodeFacts>& nodes, const std::string& why, Instant now);
  // A stage of ours became ready (first time or restarted in place).
  ReplicaActions on_stage_ready(uint32_t stage, const Seat& seat, Instant now);
  // A stage ended. If its supervisor restarts it, its seat waits for the next on_stage_ready; if
  // not, it is placed elsewhere (on another node if there is one).
  ReplicaActions on_stage_lost(uint32_t stage, const NodeId& node, Incarnation incarnation,
                               bool restarting, const std::string& why, Instant now);
  // A stage runs there and says so, as all do now and then. What nobody wants is stopped: nodes
  // keep the stages that a head's earlier life gave them, and an order to stop may have been lost.
  ReplicaActions on_stage_heard(uint32_t stage, const NodeId& node) const;
  // The node could not load it (no such file, no memory): that node is not asked again for this
  // stage until it rejoins. News of an attempt that was given up meanwhile count for nothing.
  ReplicaActions on_assign_failed(uint64_t attempt, const Error& why, Instant now);
  // An operator wants the stage on that node. Accepted moves show in moving_to(); one that fails or
  // that a loss overtakes is undone (move_trouble() says why) and not tried again. Refused, and
  // then nothing has changed, with kNotFound (no such stage or member), kUnavailable (it does not
  // serve now), kAlreadyExists (it is there), kInvalidArgument (the node drains), kConflict
  // (another stage is moving), kResourceExhausted (no room there).
  Result<ReplicaActions> on_move(uint32_t stage, const NodeId& node, Instant now);
  // Two executions of the same input gave different results, and a third one decided (or could not:
  // then each of them is named). That life must not go on: it is stopped, and its stage placed
  // anew.
  ReplicaActions on_wrong(uint32_t stage, Incarnation life, const std::string& why, Instant now);
  // From now on standbys are kept, or not.
  ReplicaActions on_policy(StandbyPolicy policy, Instant now);
  ReplicaActions on_committed(ViewNumber number, Instant now);
  ReplicaActions on_conflict(ViewNumber newest,
                             Instant now);  // the ledger's newest view is another: propose above it
  ReplicaActions on_installed(uint32_t stage, ViewNumber number, Instant now);
  ReplicaActions on_tick(Instant now);  // deadlines; call at least every 100 ms

  ReplicaState state() const;
  const View& view()
      const;  // the newest proposed or installed one; seats may be empty before the first
  // Who is ready to take a seat, or will be with the next view; ascending by stage.
  std::vector<Standby> ready_standbys() const;
  // Whether the stage has a standby that it feeds: it could take the seat now.
  bool follows(uint32_t stage) const;
  // One is on its way: it loads, or waits for the view that names it.
  bool standby_comes(uint32_t stage) const;
  // Why the stage has no standby although it shall have one, if no node can; else empty.
  std::string standby_trouble(uint32_t stage) const;
  // Where the stage is being placed, if that is not where the view has it; else empty.
  NodeId moving_to(uint32_t stage) const;
  // Why the stage is still where it is although a planned move was to take it away; else empty.
  std::string move_trouble(uint32_t stage) const;
  uint32_t faults() const;                           // losses of stages or nodes survived so far
  const std::vector<ReplicaEvent>& history() const;  // newest last, at most 64

 private:
  // One life of one stage, from its assignment on.
  struct Stage {
    enum class Phase : uint8_t { kUnplaced, kLoading, kReady, kRestarting };
    Phase phase = Phase::kUnplaced;
    NodeId node;
    Incarnation node_incarnation;
    LayerRange layers;
    Seat seat;               // when ready
    bool installed = false;  // it acknowledged view_
    uint64_t attempt = 0;    // of the assignment
    Instant since;           // of this phase
    Instant not_before;      // of the next attempt at a node it failed on
    std::string cause;       // why it is not where it was in the last view that served
    bool placed() const { return phase != Phase::kUnplaced; }
    bool ready() const { return phase == Phase::kReady; }
  };
  // A stage that a live node still holds and that will be stopped when the next view serves.
  struct Leftover {
    uint32_t stage = 0;
    NodeId node;
    Incarnation node_incarnation;
  };
  struct Refusal {
    uint32_t stage = 0;
    NodeId node;
    Incarnation node_incarnation;
  };
  // recovery.cpp: facts
  void give_up(uint32_t stage, const std::string& why, Instant now, ReplicaActions& actions);
  void seat_died(uint32_t stage, const std::string& why, bool crashed, ReplicaActions& actions);
  void life_ended(uint32_t stage, Incarnation incarnation, const std::string& why, bool crashed,
                  ReplicaActions& actions);
  Result<Placement> check_move(uint32_t stage, const NodeId& node) const;
  void avoid(uint32_t stage);
  void stop_on(const NodeId& node, Incarnation incarnation, uint32_t stage,
               ReplicaActions& actions) const;
  void check_stages(Instant now, ReplicaActions& actions);
  void check_view(Instant now, ReplicaActions& actions);
  bool serves_in(uint32_t stage, const NodeId& node, Incarnation incarnation) const;
  const NodeFacts* living(const NodeId& node, Incarnation incarnation) const;
  void fault(Instant now, const std::string& text);
  void note(Instant now, std::string text, bool told = false);

  // recovery_placing.cpp: from facts to the next step
  ReplicaActions advance(Instant now, ReplicaActions actions);
  bool settled(Instant now) const;
  bool rests(Instant now, ReplicaActions& actions);
  void go_back_to_seats(Instant now, ReplicaActions& actions);
  void place_missing(Instant now, ReplicaActions& actions);
  bool must_move(const Stage& life) const;
  PlacementRequest placement_request() const;
  void assign(const Placement& placement, std::string cause, Instant now, ReplicaActions& actions);
  void stuck(const Error& why, Instant now, ReplicaActions& actions);
  bool all_ready() const;
  bool view_is_current() const;
  bool same_seats() const;
  void propose(Instant now, ReplicaActions& actions);
  void serve(Instant now, ReplicaActions& actions);
  std::string changes_text() const;

  // recovery_standby.cpp
  bool promote(uint32_t stage, const std::string& why, Instant now);
  bool is_standby(uint32_t stage, const NodeId& node) const;
  void drop_standby(uint32_t stage, Instant not_before, ReplicaActions& actions);
  void standby_ready(uint32_t stage, const Seat& seat, Instant now, ReplicaActions& actions);
  void standby_lost(uint32_t stage, Incarnation incarnation, bool restarting,
                    const std::string& why, Instant now, ReplicaActions& actions);
  void check_standbys(Instant now, ReplicaActions& actions);
  void place_standbys(Instant now, ReplicaActions& actions);
  void cannot_follow(uint32_t stage, Instant now);
  void note_unprotected(Instant now);
  const NodeFacts* standby_node(uint32_t stage) const;
  bool standbys_wait() const;
  bool checker_is_gone() const;
  ReplicaSpec spec_;
  ViewNumber last_;       // the ledger's newest, as far as known
  ViewNumber committed_;  // the newest of ours the ledger confirmed; it never goes back behind it
  View view_;
  std::vector<bool> seat_alive_;  // [seat of view_]
  std::vector<Seat> served_;      // [stage] of the last view that served; empty before the first
  std::vector<Standby> served_standbys_;
  std::vector<NodeFacts> nodes_;              // in the caller's order: the first is the head
  std::vector<Stage> stages_;                 // [stage]: where it is, or will be
  std::vector<Stage> standbys_;               // [stage]: who follows it, or will
  std::vector<std::string> standby_trouble_;  // [stage]
  std::vector<Refusal> barred_;               // the node said it cannot
  std::vector<Refusal> avoided_;              // it failed there since the last view that served
  std::vector<Leftover> leftovers_;
  std::vector<std::string> undone_;  // [stage]: why its last planned move was undone
  std::deque<Incarnation> dead_;     // stage lives that ended: late news of them counts for nothing
  ReplicaState state_ = ReplicaState::kWaiting;
  Instant step_since_;  // when view_ was proposed or installed (the state says which)
  bool install_repeated_ = false;
  std::optional<Instant> first_tick_;
  std::vector<uint32_t> moves_;  // [stage]: to other nodes after losses, since the last success
  Instant served_since_, rest_until_;
  bool placed_once_ = false;
  std::string stuck_;  // last said; empty when not stuck
  uint32_t faults_ = 0;
  std::vector<ReplicaEvent> history_;
  uint64_t last_event_ = 0, last_attempt_ = 0;

  static constexpr uint32_t kMovesMax = 3;
  static constexpr Duration kSuccess = 1s;
  static constexpr Duration kRest = 10s;
  static constexpr size_t kHistoryMax = 64;
  static constexpr size_t kDeadMax = 64;
  static constexpr Duration kStandbyRetryAfter = 5s;  // the next attempt after one that failed
  static constexpr Duration kRetryAfter =
      1s;  // at a node where it just failed, when there is no other
};

}  // namespace troupe

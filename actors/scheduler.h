// The scheduler actor, on the head: who is a member, where stages are, which view is in force. What
// to do is decided by logic/membership and logic/recovery; this shell carries it out (assign, swap,
// install, serve) and reports back.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "actors/logic/membership.h"
#include "actors/logic/recovery.h"
#include "actors/messages.h"

namespace troupe {

// The one deployment of a head, as its configuration says.
struct DeploymentOptions {
  std::string name;
  std::string model_path;
  uint32_t stages = 1;
  uint32_t nodes_expected = 1;
  std::vector<uint32_t> layer_split;
  uint32_t kv_blocks = 0;
  uint32_t threads = 1;
  uint32_t rows_max = 256;
  uint64_t journal_bytes = uint64_t{256} << 20;  // of each stage
  StandbyPolicy standby = StandbyPolicy::kNone;
  std::string kernels = "auto";
};

struct SchedulerOptions {
  std::string cluster_id;
  NodeId self;
  DeploymentOptions deployment;
  Incarnation batcher_incarnation;
  std::vector<std::byte> batcher_address;
  PeerActor peer;
  HealthMonitor health;
  LedgerActor ledger;
  ModelRegistry registry;
  BatcherActor batcher;
  ServingListener gateway;
  Duration tick = 50ms;
  Duration load_max = 300s;
  Duration install_max = 2s;
  Duration settle_max = 5s;
};

struct SchedulerState {
  static inline const char* name = "scheduler";

  struct Node {
    Incarnation incarnation;
    std::string address;
    std::optional<NodeInventory> inventory;  // a node without one takes no stages yet
    NodeState state = NodeState::kAlive;
    bool leaving = false;
    Instant since;
    uint32_t restarts = 0;
  };
  struct StageRecord {
    StageFigures last;
    Instant at;
    double rows_per_second = 0, busy_fraction = 0;
  };

  SchedulerActor::stateful_pointer<SchedulerState> self = nullptr;
  SchedulerOptions options;
  Membership membership;
  std::map<NodeId, Node> nodes;       // members
  std::map<NodeId, Node> lost_nodes;  // the last life of each, for status
  std::set<NodeId> drained;           // by an operator; outlives the node's lives, not this one
  ModelPtr model;
  std::optional<Error> failure;  // the deployment cannot start: why
  std::unique_ptr<Replica> replica;
  bool view_due = false;  // the ledger did not say which view is the newest: ask it again
  std::map<uint32_t, StageRecord> figures;
  uint64_t replica_noted = 0;          // number of its newest event that was looked at
  ViewNumber held_in;                  // the newest view that stages said they installed …
  std::map<uint32_t, StageHeld> held;  // … and what each holds
  std::deque<ClusterEvent> events;
  std::string told_gateway;  // last serving state told, to tell changes only
  uint64_t tokens_at_last_status = 0;
  Instant last_status;

  void start();
  void model_opened(const OpenedModel& opened);
  void read_view();
  void view_unread(const Error& why);
  void view_read(const ViewOutcome& outcome);
  void joined(const PeerJoined& event);
  void node_lost(const NodeId& node, Incarnation incarnation, const std::string& why, bool evict);
  void verdict(const PeerVerdict& verdict);
  void said(const PeerSaid& words);
  void accused(const WrongResult& wrong);
  void stage_ready(const NodeId& from, const StageReady& ready);
  void record(const StageFigures& now_figures);
  void nodes_changed(const std::string& why);
  void carry_out(const ReplicaActions& actions);
  void carry_out(const AssignAction& action);
  void carry_out(const StopAction& action);
  void carry_out(const ProposeAction& action);
  void carry_out(const InstallAction& action);
  void take_holdings(const ViewInstalled& installed);
  void carry_out(const ServeAction& action);
  void carry_out(const PauseAction& action);
  void carry_out(const StuckAction& action);
  void tell_gateway(bool serving, const std::string& why);
  void note(const std::string& text);
  // scheduler_orders.cpp: what people ask for
  Result<void> check_deployment(const std::string& wanted) const;
  Result<void> order(const DrainCall& call);
  Result<void> order(const MoveCall& call);
  Result<void> order(const StandbyCall& call);
  Error not_here(const NodeId& node) const;
  void inject(const FaultCall& fault, const std::function<void(std::optional<Error>)>& done);
  void status(const std::function<void(ClusterStatus)>& done);
  ClusterStatus status_of_cluster() const;
  DeploymentStatus status_of_deployment() const;
  StageStatus status_of_stage(uint32_t stage, const Seat& seat) const;
  void fill_standby(StageStatus& status) const;
  StageSpec spec_of(uint32_t stage, LayerRange layers) const;
};

SchedulerActor::behavior_type scheduler_actor(SchedulerActor::stateful_pointer<SchedulerState> self,
                                              SchedulerOptions options);

}  // namespace troupe

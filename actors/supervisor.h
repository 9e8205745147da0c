// The supervisor of a daemon's stages: OTP's one_for_one. A stage is a process of its own
// (`isolation: process`) or an actor in here (`isolation: thread`); either way it is started,
// watched, restarted within a budget, and given up beyond it. The head hears of every end
// (StageLost) and of every new life (StageReady).
//
// In a stage process the same supervisor runs with thread isolation and holds the one stage; its
// daemon is its head.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "actors/logic/restart.h"
#include "actors/messages.h"
#include "actors/owed_promise.h"
#include "actors/stage.h"
#include "actors/stage_launcher.h"

namespace troupe {

// Starts a stage actor with a new incarnation.
using StageSpawner = std::function<StageActor(const StageSpec& spec, Incarnation incarnation)>;

struct SupervisorOptions {
  NodeId self;
  PeerActor peer;
  HealthMonitor health;
  StageSpawner spawner;                     // thread isolation
  std::shared_ptr<StageLauncher> launcher;  // process isolation; null: thread isolation
  RestartBudget budget;
  bool allow_faults = false;
  Duration load_max = 300s;  // a stage that is not ready by then is started again
  Duration hello_max = 10s;  // a process that has not said hello by then is killed
  Duration view_max = 5s;    // for a stage to take a view
  Duration figures_interval = 250ms;
  std::function<Incarnation()> new_incarnation;
};

struct SupervisorState {
  static inline const char* name = "supervisor";
  using Key = std::pair<std::string, uint32_t>;  // deployment, stage

  struct Child {
    Child(StageSpec work, RestartPolicy restarts_allowed)
        : spec(std::move(work)), policy(std::move(restarts_allowed)) {}

    StageSpec spec;
    RestartPolicy policy;
    uint64_t life = 0;      // grows with each start
    StageActor actor;       // thread isolation
    uint64_t process = 0;   // process isolation; 0: not running
    NodeId node;            // its node id
    bool assigned = false;  // told what to load
    Instant hello_deadline;
    std::optional<StageReady> ready;
    std::string kill_reason;  // why we ended it, for the report
    std::vector<OwedPromise<HostedStage>> waiting;
    uint32_t restarts = 0;
  };

  SupervisorState() = default;
  ~SupervisorState();  // ends the stages that are actors here: none outlives its supervisor

  Supervisor::stateful_pointer<SupervisorState> self = nullptr;
  SupervisorOptions options;
  std::map<Key, Child> children;
  std::vector<OwedPromise<StagesGone>> gone;
  std::map<uint64_t, Key> dying;  // processes of removed children, until they were reaped

  void host(const StageSpec& spec, OwedPromise<HostedStage> promise);
  void start(const Key& key);
  void start_actor(const Key& key, Child& child);
  void start_process(const Key& key, Child& child);
  void child_ready(const Key& key, uint64_t life, const StageReady& ready);
  void child_failed(const Key& key, uint64_t life, const Error& why, bool permanent);
  void remove(const Key& key);
  void ended(const ChildEnded& event);
  void actor_down(const caf::actor_addr& address, const std::string& how);
  void lost(const Key& key, const std::string& cause);
  void restart(const RestartChild& order);
  void joined(const PeerJoined& event);
  void child_said(const PeerSaid& words);
  void verdict(const PeerVerdict& verdict);
  void tell_stages(const ControlBody& body, OwedPromise<PeerAnswer> promise);
  void install(const InstallView& order, OwedPromise<PeerAnswer> promise);
  void install_in(const Child& child, const InstallView& order,
                  const std::function<void(const Result<std::vector<StageHeld>>&)>& done);
  void inject(const InjectFault& order, OwedPromise<PeerAnswer> promise);
  void tick();
  void check_gone();
  Child* find_by_node(const NodeId& node, Key& key);
};

Supervisor::behavior_type supervisor(Supervisor::stateful_pointer<SupervisorState> self,
                                     SupervisorOptions options);

}  // namespace troupe

// A whole cluster in one thread and virtual time: the real actors of several daemons, each with a
// faulty loopback transport, and between them peer links that delay and can be cut. What happens
// is a function of the seed and of the calls.
//
// Not simulated: stage processes (isolation is `thread`).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/stage.h"
#include "tests/actors/world.h"
#include "tests/sim/control_net.h"
#include "tests/sim/ledger_tap.h"
#include "tests/sim/node_transport.h"
#include "tests/sim/plant.h"
#include "tests/sim/witness.h"

namespace troupe::sim {

struct ClusterOptions {
  uint64_t seed = 1;
  uint32_t nodes = 3, stages = 3;  // the first node is the head
  StandbyPolicy standby = StandbyPolicy::kNone;
  FaultOdds odds;
  uint64_t journal_bytes = 1 << 20;
  Duration step = 1ms;  // of a micro-batch; half to three halves of it
  Plant plant = Plant::kNone;
};

// What of a node is cut off, in silence.
struct Cut {
  bool to_head = false, to_worker = false;  // of its peer link
  bool data_in = false, data_out = false;
};

class Cluster final : public test::Stagehand {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster() override;

  // The simulation's own time, also while the clock shows a node's.
  Instant now() { return Stagehand::now() - shown_ahead_; }

  // Clients. A call while the head is down is lost, as a connection is; false then.
  bool generate(GenerateCall call, std::shared_ptr<PieceSink> sink);
  void detach(const RequestId& id, const PieceSink* sink);
  void cancel(const RequestId& id);
  void operate(OperatorCall call);  // drain, move, standby: refused or not, nobody waits
  void inject(uint32_t stage, const std::string& fault);
  uint64_t head_life() const { return nodes_[0].life; }  // 0: it is down

  // Faults. Dead at once; its keeper starts it again after `down`. Paused: it does nothing, and
  // what is sent to it waits. Slow: micro-batches take so many times longer.
  void crash(uint32_t node, Duration down);
  // The compute thread of the stage's seat never finishes what it takes next; not on the head,
  // whose threads nobody ends.
  void hang(uint32_t stage);
  void pause(uint32_t node, bool paused);
  void slow(uint32_t node, uint32_t factor) { nodes_[node].slow = factor; }
  void cut(uint32_t worker, const Cut& cut);
  // Its clock jumps, for good: the one that deadlines and silences are judged by, or what it takes
  // for the time of day.
  void leap(uint32_t node, Duration by);
  void leap_wall(uint32_t node, Duration by) { nodes_[node].wall_ahead += by; }
  // Sick: no stage can be loaded there.
  void sicken(uint32_t node, bool sick) { nodes_[node].sick = sick; }
  void stall_ledger(bool stalled) { ledger_stalled_ = stalled; }
  void trouble_ledger(const LedgerTrouble& trouble) { *ledger_trouble_ = trouble; }
  // Somebody else, who knows the newest view, swaps it for the next one.
  void rival_swap();
  // No faults from now on, except that nodes that are down still have to come back.
  void heal();

  // Lets virtual time pass, until `done` or the limit. True if done.
  bool run(Duration limit, const std::function<bool()>& done);
  void after(Duration delay, std::function<void()> action);
  std::optional<ClusterStatus> status(Duration limit);
  uint32_t vocabulary() const { return vocabulary_; }
  uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  const std::shared_ptr<Witness>& witness() const { return witness_; }
  // A seat is down, or the newest view has not computed anything yet.
  bool recovering() const;

 private:
  static constexpr uint32_t kDisk = UINT32_MAX;  // owner of the ledger's actors

  struct Node {
    NodeId id;
    uint64_t life = 0;  // incarnation; 0: it is down
    bool paused = false;
    uint32_t slow = 1;
    bool sick = false;
    Duration ahead{}, wall_ahead{};
    Cut cut;
    std::shared_ptr<FrameRouter> router;
    std::shared_ptr<NodeTransport> transport;
    PeerActor peer;
    HealthMonitor health;
    Supervisor supervisor;
    NodeActor node;
    ModelRegistry registry;
    std::vector<caf::strong_actor_ptr> actors;
    std::vector<std::function<void()>> waiting;  // for the end of its pause
    std::vector<std::pair<uint32_t, std::weak_ptr<ComputeFigures>>> computes;  // by stage
  };

  // cluster_nodes.cpp: building nodes
  void start(uint32_t index);
  void start_transport(uint32_t index);
  void start_supervisor(uint32_t index);
  void start_node_actor(uint32_t index);
  void start_head_actors();
  void start_scheduler(Incarnation batcher_life);
  StageActor start_stage(uint32_t index, const StageSpec& spec, Incarnation life);
  void forget_actors(uint32_t index);
  uint64_t life_of(const NodeId& id) const;  // 0: it is down

  // cluster.cpp: time
  bool pump() override;
  void work();
  bool run_job();
  void run_in_its_time(caf::resumable* job);
  bool may_run(caf::resumable* job) const;
  void on_node(uint32_t index, uint64_t life, Duration delay, std::function<void()> action);
  void beat();
  std::vector<Progress> progress_of(uint32_t index);
  void apply_cut(uint32_t index);
  void saw(const ControlMessage& message);
  template <class Actor>
  Actor owned_by(uint32_t index, Actor actor) {
    auto pointer = caf::actor_cast<caf::strong_actor_ptr>(actor);
    owners_[pointer->id()] = index;
    if (index != kDisk) nodes_[index].actors.push_back(std::move(pointer));
    return actor;
  }
  void watch_end(uint32_t index, const caf::strong_actor_ptr& actor, const char* name);

  ClusterOptions options_;
  std::mt19937_64 draw_;
  std::shared_ptr<Witness> witness_ = std::make_shared<Witness>();
  std::unique_ptr<LoopbackHub> hub_;
  std::unique_ptr<ControlNet> net_;
  std::vector<Node> nodes_;
  std::unordered_map<caf::actor_id, uint32_t> owners_;
  std::multimap<Instant, std::function<void()>> events_;
  uint64_t last_life_ = 1000;
  Duration shown_ahead_{};
  bool ledger_stalled_ = false;
  std::shared_ptr<LedgerTrouble> ledger_trouble_ = std::make_shared<LedgerTrouble>();
  std::set<Incarnation> hanging_;  // stages
  LedgerActor ledger_;
  GatewayActor gateway_;
  BatcherActor batcher_;
  SchedulerActor scheduler_;
  uint32_t vocabulary_ = 0;
  bool ending_ = false;
};

}  // namespace troupe::sim

// A whole cluster in one thread and virtual time: the real actors of several daemons, each with a
// faulty loopback transport, and between them a wire that delays, and can be cut. What happens is a
// function of the seed and of the calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/actors/world.h"
#include "tests/sim/fake_stage.h"
#include "transport/faulty.h"

namespace troupe::sim {

struct ClusterOptions {
  uint64_t seed = 1;
  uint32_t nodes = 3, stages = 3;  // the first node is the head
  StandbyPolicy standby = StandbyPolicy::kNone;
  FaultOdds odds;
  uint64_t journal_bytes = 1 << 20;
  Plant plant = Plant::kNone;
};

class Cluster final : public test::Stagehand {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster() override;

  void generate(GenerateCall call, const std::shared_ptr<test::RecordingSink>& sink);
  void detach(const RequestId& id, const std::shared_ptr<test::RecordingSink>& sink);
  void operate(OperatorCall call);  // drain, move, standby: refused or not, nobody waits
  void inject(uint32_t stage, const std::string& fault);

  // Faults of a node other than the head. Dead at once, for everybody to see; its keeper starts it
  // again after a while. Cut off: nothing gets in or out, in silence, until it is healed.
  void crash(uint32_t node);
  void cut(uint32_t node, bool cut);
  bool is_up(uint32_t node) const { return nodes_[node].life != 0; }

  // No faults from now on.
  void heal();
  // Lets virtual time pass, until `done` or the limit. True if done.
  bool run(Duration limit, const std::function<bool()>& done);
  // Runs it at that time from now.
  void after(Duration delay, std::function<void()> action);
  ClusterStatus status();
  uint32_t vocabulary() const { return vocabulary_; }

 protected:
  bool pump() override;

 private:
  class Wire;
  struct Node {
    NodeId id;
    uint64_t life = 0;  // incarnation; 0: it is down
    std::shared_ptr<FrameRouter> router;
    std::shared_ptr<FaultyTransport> transport;
    PeerActor peer;
    HealthMonitor health;
    Supervisor supervisor;
    NodeActor node;
    ModelRegistry registry;
    std::vector<caf::strong_actor_ptr> actors;
    bool is_cut = false;
    uint64_t beat = 0;
  };
  struct Link {  // between the head and a worker
    uint32_t worker = 0;
    uint64_t worker_life = 0;
    Instant last_due[2];  // to the head, to the worker: messages keep their order
    std::vector<std::function<void()>> held;  // sent while it was cut
  };

  void start(uint32_t index);
  void start_head_actors();
  void connect(uint32_t worker);
  void disconnect(LinkId link, const std::string& why);
  void beat();
  void deliver(LinkId link, bool to_head, ControlMessage message);
  void restart_later(uint32_t index, Duration delay);
  template <class Actor>
  Actor of_node(uint32_t index, Actor actor) {
    nodes_[index].actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(actor));
    return actor;
  }

  ClusterOptions options_;
  std::mt19937_64 draw_;
  std::unique_ptr<LoopbackHub> hub_;
  std::vector<Node> nodes_;
  std::map<LinkId, Link> links_;
  std::multimap<Instant, std::function<void()>> events_;
  uint64_t last_life_ = 1000, last_link_ = 0;
  GatewayActor gateway_;
  BatcherActor batcher_;
  SchedulerActor scheduler_;
  LedgerActor ledger_;
  uint32_t vocabulary_ = 0;
  bool ending_ = false;
};

}  // namespace troupe::sim

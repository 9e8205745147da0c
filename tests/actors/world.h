// A head with its stages as actors of one system, in one thread and virtual time: CAF's testing
// scheduler, the loopback transport pumped by hand, arithmetic inline, a ledger in memory.
// Everything else is what a daemon runs.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "actors/dataplane/frame_router.h"
#include "actors/gateway.h"
#include "actors/messages.h"
#include "actors/peer.h"
#include "transport/loopback.h"

namespace troupe::test {

// Collects what a listener of a stream hears.
class RecordingSink final : public PieceSink {
 public:
  void piece(GeneratedPiece piece) override { pieces.push_back(std::move(piece)); }
  void end(GenerateEnd how) override { ends.push_back(std::move(how)); }
  std::vector<uint32_t> tokens() const;
  std::vector<uint64_t> digests() const;

  std::vector<GeneratedPiece> pieces;
  std::vector<GenerateEnd> ends;
};

struct TestingConfig : caf::actor_system_config {
  TestingConfig() { set("scheduler.policy", caf::atom("testing")); }
};

// The deterministic driver alone, for tests of single actors.
class Stagehand {
 public:
  explicit Stagehand(uint64_t seed);
  virtual ~Stagehand();
  Stagehand(const Stagehand&) = delete;
  Stagehand& operator=(const Stagehand&) = delete;

  caf::actor_system& system() { return *system_; }
  caf::scheduler::test_coordinator& scheduler() { return *scheduler_; }
  Instant now() { return scheduler_->clock().now(); }
  // Runs messages in a seeded order until nobody has any; time stands still.
  void settle();
  // Lets virtual time pass, timer by timer.
  void advance(Duration duration);
  // Ends an actor at the end of the test, before the system.
  template <class Actor>
  Actor owned(Actor actor) {
    owned_.push_back(caf::actor_cast<caf::strong_actor_ptr>(actor));
    return actor;
  }

 protected:
  virtual bool pump() { return false; }  // other sources of events; true if there were any
  void end_all();

 private:
  TestingConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_ = nullptr;
  std::mt19937_64 random_;
  std::vector<caf::strong_actor_ptr> owned_;
};

struct WorldOptions {
  uint64_t seed = 1;
  uint32_t stages = 3;
  std::string model;  // path
  bool allow_faults = true;
};

class World final : public Stagehand {
 public:
  explicit World(const WorldOptions& options);
  ~World() override;

  void generate(GenerateCall call, const std::shared_ptr<RecordingSink>& sink);
  // Runs until the sink got its end, or `limit` of virtual time is over.
  bool run_until_end(const RecordingSink& sink, Duration limit = 60s);
  // Runs until the sink has this many pieces.
  bool run_until_pieces(const RecordingSink& sink, size_t count, Duration limit = 60s);
  std::optional<Error> inject(FaultKind kind, uint32_t stage);
  ClusterStatus status();

  GatewayActor gateway;
  BatcherActor batcher;
  SchedulerActor scheduler_actor_;
  Supervisor supervisor_actor_;

 protected:
  bool pump() override { return hub_->pump(1) > 0; }

 private:
  Supervisor start_supervisor(const WorldOptions& options, const PeerActor& peer,
                              const HealthMonitor& health,
                              const std::shared_ptr<FrameRouter>& router,
                              const ModelRegistry& registry);
  NodeActor start_node(const PeerActor& peer, const HealthMonitor& health,
                       const std::shared_ptr<FrameRouter>& router);
  template <class Done>
  bool run_until(Done done, Duration limit);

  std::unique_ptr<LoopbackHub> hub_;
  std::shared_ptr<FrameRouter> router_ = std::make_shared<FrameRouter>();
  std::shared_ptr<Transport> transport_;
};

// A tiny model's file, made once per process in the temporary folder.
const std::string& tiny_model_path();

}  // namespace troupe::test

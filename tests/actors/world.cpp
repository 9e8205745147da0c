#include "tests/actors/world.h"

#include <unistd.h>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <cstdlib>
#include <filesystem>

#include "actors/batcher.h"
#include "actors/health_monitor.h"
#include "actors/ledger.h"
#include "actors/model_registry.h"
#include "actors/node.h"
#include "actors/scheduler.h"
#include "actors/stage.h"
#include "actors/supervisor.h"
#include "tests/support/tiny_model.h"

namespace troupe::test {
namespace {

// A process without peers.
class NoWire final : public PeerWire {
 public:
  Result<void> send(LinkId, ControlMessage) override {
    return Error{ErrorCode::kUnavailable, "no peers here"};
  }
  void close(LinkId, std::string) override {}
};

constexpr uint32_t kBlocks = 64;

}  // namespace

std::vector<uint32_t> RecordingSink::tokens() const {
  std::vector<uint32_t> all;
  for (const auto& piece : pieces) all.push_back(piece.token);
  return all;
}

std::vector<uint64_t> RecordingSink::digests() const {
  std::vector<uint64_t> all;
  for (const auto& piece : pieces) all.push_back(piece.logits_digest);
  return all;
}

Stagehand::Stagehand(uint64_t seed)
    : system_(std::make_unique<caf::actor_system>(config_)), random_(seed) {
  scheduler_ = dynamic_cast<caf::scheduler::test_coordinator*>(&system_->scheduler());
  TROUPE_CHECK(scheduler_ != nullptr, "the testing scheduler was asked for");
  // Otherwise the destructor would run periodic timers for ever.
  system_->await_actors_before_shutdown(false);
}

Stagehand::~Stagehand() {
  end_all();
}

void Stagehand::end_all() {
  for (auto& actor : owned_)
    caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
  owned_.clear();
  if (scheduler_ != nullptr) settle();
}

void Stagehand::settle() {
  for (;;) {
    auto& jobs = scheduler_->jobs;
    if (!jobs.empty()) {
      const auto chosen = jobs.begin() + static_cast<std::ptrdiff_t>(random_() % jobs.size());
      std::rotate(jobs.begin(), chosen, chosen + 1);
      scheduler_->try_run_once();
      continue;
    }
    if (!pump()) return;
  }
}

void Stagehand::advance(Duration duration) {
  const Instant end = now() + duration;
  auto& clock = scheduler_->clock();
  settle();
  while (!clock.schedule().empty() && clock.schedule().begin()->first <= end) {
    scheduler_->trigger_timeout();
    settle();
  }
  clock.current_time = std::max(clock.current_time, caf::actor_clock::time_point{end});
}

Supervisor World::start_supervisor(const WorldOptions& options, const PeerActor& peer,
                                   const HealthMonitor& health,
                                   const std::shared_ptr<FrameRouter>& router,
                                   const ModelRegistry& registry) {
  auto next_life = std::make_shared<uint64_t>(1000);
  SupervisorOptions supervision;
  supervision.self = "node-1";
  supervision.peer = peer;
  supervision.health = health;
  supervision.allow_faults = options.allow_faults;
  supervision.new_incarnation = [next_life] { return Incarnation{++*next_life}; };
  supervision.spawner = [this, router, registry](const StageSpec& spec, Incarnation incarnation) {
    return system().spawn(stage_actor, StageOptions{.spec = spec,
                                                    .incarnation = incarnation,
                                                    .router = router,
                                                    .registry = registry,
                                                    .data_address = transport_->address(),
                                                    .process = 1,
                                                    .open_max = 300s,
                                                    .compute = inline_compute(),
                                                    .programs = transformer_programs()});
  };
  return owned(system().spawn(supervisor, supervision));
}

NodeActor World::start_node(const PeerActor& peer, const HealthMonitor& health,
                            const std::shared_ptr<FrameRouter>& router) {
  NodeOptions node_options;
  node_options.self = "node-1";
  node_options.peer = peer;
  node_options.supervisor = supervisor_actor_;
  node_options.health = health;
  node_options.router = router;
  node_options.inventory = [] {
    NodeInventory inventory;
    inventory.memory_bytes = inventory.memory_free_bytes = uint64_t{1} << 32;
    inventory.cores = 1;
    return inventory;
  };
  return owned(system().spawn(node_actor, node_options));
}

World::World(const WorldOptions& options) : Stagehand(options.seed) {
  caf::actor_system& actors = system();
  hub_ = std::make_unique<LoopbackHub>(LoopbackPump::kByHand);
  transport_ = hub_->attach(*router_);
  router_->attach(transport_);
  const auto health = owned(actors.spawn(health_monitor, HealthOptions{}));
  const auto registry = owned(actors.spawn(model_registry, RegistryOptions{}));
  const Incarnation life{100};
  PeerActorOptions peer_options;
  peer_options.wire = std::make_shared<NoWire>();
  peer_options.self = "node-1";
  peer_options.incarnation = life;
  const auto peer = owned(actors.spawn(peer_actor, peer_options));
  supervisor_actor_ = start_supervisor(options, peer, health, router_, registry);
  const auto node = start_node(peer, health, router_);

  auto store = LedgerStore::open(":memory:");
  const auto ledger = owned(actors.spawn(
      ledger_actor, std::make_shared<std::unique_ptr<LedgerStore>>(std::move(store).value())));
  GatewayOptions gateway_options;
  gateway_options.self = "node-1";
  gateway_options.deployment = "tiny";
  gateway_options.ledger = ledger;
  gateway_options.limits.context_max = 256;
  gateway = owned(actors.spawn(gateway_actor, gateway_options));
  BatchingLimits limits;
  limits.stages = options.stages;
  limits.in_flight_max = options.stages + 1;
  limits.context_max = 256;
  limits.kv_blocks = kBlocks;
  batcher = owned(actors.spawn(batcher_actor, BatcherOptions{.limits = limits,
                                                             .incarnation = Incarnation{200},
                                                             .router = router_,
                                                             .listener = gateway}));
  SchedulerOptions scheduling;
  scheduling.cluster_id = "test";
  scheduling.self = "node-1";
  scheduling.deployment.name = "tiny";
  scheduling.deployment.model_path = options.model;
  scheduling.deployment.stages = options.stages;
  scheduling.deployment.kv_blocks = kBlocks;
  scheduling.batcher_incarnation = Incarnation{200};
  scheduling.batcher_address = transport_->address();
  scheduling.peer = peer;
  scheduling.health = health;
  scheduling.ledger = ledger;
  scheduling.registry = registry;
  scheduling.batcher = batcher;
  scheduling.gateway = gateway;
  scheduler_actor_ = owned(actors.spawn(scheduler_actor, scheduling));
  const auto model = open_model(options.model, "");
  auto codec = PromptCodec::from(*model.value());
  caf::anon_send(gateway, GatewayBinding{batcher, scheduler_actor_,
                                         std::make_shared<PromptCodec>(std::move(codec).value())});
  BindPeerListeners listeners;
  listeners.nodes = scheduler_actor_;
  listeners.children = supervisor_actor_;
  listeners.upstream = node;
  caf::anon_send(peer, listeners);
  advance(1s);
}

World::~World() {
  gateway = nullptr;
  batcher = nullptr;
  scheduler_actor_ = nullptr;
  supervisor_actor_ = nullptr;
  end_all();
  router_->detach();
}

void World::generate(GenerateCall call, const std::shared_ptr<RecordingSink>& sink) {
  caf::anon_send(gateway, GenerateOrder{std::move(call), sink});
}

template <class Done>
bool World::run_until(Done done, Duration limit) {
  const Instant end = now() + limit;
  while (!done() && now() < end) {
    auto& jobs = scheduler().jobs;
    if (!jobs.empty())
      scheduler().try_run_once();
    else if (!pump())
      advance(10ms);
  }
  return done();
}

bool World::run_until_end(const RecordingSink& sink, Duration limit) {
  return run_until([&] { return !sink.ends.empty(); }, limit);
}

bool World::run_until_pieces(const RecordingSink& sink, size_t count, Duration limit) {
  return run_until([&] { return sink.pieces.size() >= count; }, limit);
}

std::optional<Error> World::inject(FaultKind kind, uint32_t stage) {
  auto answer = std::make_shared<std::optional<Result<void>>>();
  caf::anon_send(gateway, InjectOrder{FaultCall{"", stage, kind}, [answer](Result<void> result) {
                                        *answer = std::move(result);
                                      }});
  run_until([&] { return answer->has_value(); }, 10s);
  if (!answer->has_value())
    return Error{ErrorCode::kDeadlineExceeded, "no answer to a fault order"};
  return (*answer)->ok() ? std::nullopt : std::optional((*answer)->error());
}

ClusterStatus World::status() {
  auto answer = std::make_shared<std::optional<ClusterStatus>>();
  caf::anon_send(gateway, StatusOrder{[answer](Result<ClusterStatus> status) {
                   if (status.ok()) *answer = status.value();
                 }});
  run_until([&] { return answer->has_value(); }, 10s);
  return answer->value_or(ClusterStatus{});
}

const std::string& tiny_model_path() {
  struct File {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("troupe-tiny-" + std::to_string(::getpid()) + ".gguf"))
                           .string();
    File() {
      const auto written = write_tiny_model({.layers = 6, .context = 256}, path);
      TROUPE_CHECK(written.ok(), "the temporary folder takes a tiny model");
    }
    ~File() { std::filesystem::remove(path); }
  };
  static const File file;
  return file.path;
}

}  // namespace troupe::test

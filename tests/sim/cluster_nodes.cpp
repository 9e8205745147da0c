// How a simulated daemon is put together: as apps/node/runtime_steps.cpp does, with another wire,
// transport, arithmetic and disk.
#include <fmt/format.h>
#include <caf/send.hpp>

#include <algorithm>

#include "actors/batcher.h"
#include "actors/health_monitor.h"
#include "actors/ledger.h"
#include "actors/model_registry.h"
#include "actors/node.h"
#include "actors/scheduler.h"
#include "actors/supervisor.h"
#include "tests/sim/cluster.h"
#include "tests/sim/fake_stage.h"
#include "tests/sim/ledger_tap.h"
#include "tests/sim/node_clock.h"
#include "tests/sim/peer_tap.h"
#include "tests/sim/virtual_compute.h"

namespace troupe::sim {
namespace {

constexpr uint32_t kBlocks = 64;
constexpr uint32_t kContext = 256;

BatchingLimits limits_of(const ClusterOptions& options) {
  BatchingLimits limits;
  limits.stages = options.stages;
  limits.in_flight_max = options.stages + 1;
  limits.prefill_chunk_max = 8;
  limits.context_max = kContext;
  limits.kv_blocks = kBlocks;
  limits.reissue_after = 2s;
  return limits;
}

// The file is read once a process: its content is the same in all runs.
Result<ModelPtr> open_once(const std::string& path, const std::string&) {
  static const Result<ModelPtr> model = open_model(path, "");
  return model;
}

}  // namespace

void Cluster::watch_end(uint32_t index, const caf::strong_actor_ptr& actor, const char* name) {
  // A daemon whose vital actor dies ends; here nothing may make one die.
  actor->get()->attach_functor([this, index, name](const caf::error& reason) {
    if (reason == caf::exit_reason::kill) return;
    witness_->broken(
        fmt::format("the {} of {} ended: {}", name, nodes_[index].id, system().render(reason)));
  });
}

void Cluster::forget_actors(uint32_t index) {
  Node& node = nodes_[index];
  for (const auto& actor : node.actors)
    caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
  node.actors.clear();
  node.peer = nullptr;
  node.health = nullptr;
  node.supervisor = nullptr;
  node.node = nullptr;
  node.registry = nullptr;
  if (index != 0) return;
  gateway_ = nullptr;
  batcher_ = nullptr;
  scheduler_ = nullptr;
}

uint64_t Cluster::life_of(const NodeId& id) const {
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) { return node.id == id; });
  return found == nodes_.end() ? 0 : found->life;
}

void Cluster::start_transport(uint32_t index) {
  Node& node = nodes_[index];
  node.router = std::make_shared<FrameRouter>();
  node.transport = std::make_shared<NodeTransport>(NodeTransportOptions{
      .seed = draw_(),
      .odds = options_.odds,
      .hub = hub_.get(),
      .router = node.router,
      .witness = witness_,
      .plant = options_.plant,
      .in_its_time =
          [this, index](const std::function<void()>& event) {
            const NodeClock its_time(scheduler().clock(), 0, nodes_[index].ahead, shown_ahead_);
            event();
          },
      .wall_ahead = [this, index] { return nodes_[index].wall_ahead; }});
  node.router->attach(node.transport);
  apply_cut(index);
}

StageActor Cluster::start_stage(uint32_t index, const StageSpec& spec, Incarnation life) {
  Node& node = nodes_[index];
  VirtualComputeOptions compute;
  compute.life = life;
  compute.witness = witness_;
  compute.after = [this, index, node_life = node.life](Duration delay,
                                                       std::function<void()> action) {
    on_node(index, node_life, delay, std::move(action));
  };
  compute.load_time = [this] { return std::chrono::milliseconds(1 + draw_() % 100); };
  compute.step_time = [this, index] {
    return options_.step * nodes_[index].slow * (50 + draw_() % 100) / 100;
  };
  compute.hangs = [this, life] { return hanging_.contains(life); };
  compute.watch = [this, index](uint32_t stage, const std::shared_ptr<ComputeFigures>& figures) {
    nodes_[index].computes.emplace_back(stage, figures);
  };
  StageOptions options{.spec = spec,
                       .incarnation = life,
                       .router = node.router,
                       .registry = node.registry,
                       .data_address = node.transport->address(),
                       .process = 1,
                       .open_max = 300s,
                       .compute = virtual_compute(std::move(compute)),
                       .programs = fake_programs({life, witness_, options_.plant,
                                                  [this, index] { return nodes_[index].sick; }})};
  return owned_by(index, system().spawn(stage_actor, std::move(options)));
}

void Cluster::start_supervisor(uint32_t index) {
  Node& node = nodes_[index];
  SupervisorOptions supervision;
  supervision.self = node.id;
  supervision.peer = node.peer;
  supervision.health = node.health;
  supervision.allow_faults = true;
  supervision.new_incarnation = [this] { return Incarnation{++last_life_}; };
  supervision.spawner = [this, index](const StageSpec& spec, Incarnation life) {
    return start_stage(index, spec, life);
  };
  node.supervisor = owned_by(index, system().spawn(supervisor, supervision));
}

void Cluster::start_node_actor(uint32_t index) {
  Node& node = nodes_[index];
  NodeOptions options;
  options.self = node.id;
  options.peer = node.peer;
  options.supervisor = node.supervisor;
  options.health = node.health;
  options.router = node.router;
  options.inventory = [] {
    NodeInventory inventory;
    inventory.memory_bytes = inventory.memory_free_bytes = uint64_t{1} << 32;
    inventory.cores = 1;
    return inventory;
  };
  // As its keeper does: the life that was evicted ends, another one comes.
  options.evicted = [this, index, life = node.life](const std::string&) {
    after(Duration{0}, [this, index, life] {
      if (nodes_[index].life == life) crash(index, 50ms);
    });
  };
  node.node = owned_by(index, system().spawn(node_actor, options));
}

void Cluster::start(uint32_t index) {
  Node& node = nodes_[index];
  node.life = ++last_life_;
  start_transport(index);
  node.health = owned_by(index, system().spawn(health_monitor, HealthOptions{}));
  node.registry =
      owned_by(index, system().spawn(model_registry, RegistryOptions{.open = open_once}));
  PeerActorOptions peer;
  peer.wire = net_->wire(index, node.life);
  peer.role = index == 0 ? PeerRole::kHead : PeerRole::kWorker;
  peer.self = node.id;
  peer.incarnation = Incarnation{node.life};
  node.peer = owned_by(index, system().spawn(peer_actor, peer));
  start_supervisor(index);
  start_node_actor(index);
  if (index == 0) start_head_actors();
  BindPeerListeners listeners;
  if (index == 0) listeners.nodes = scheduler_;
  listeners.children = node.supervisor;
  listeners.upstream = node.node;
  caf::anon_send(node.peer, listeners);
  const char* names[] = {"health monitor", "model registry", "peer",     "supervisor", "node",
                         "gateway",        "batcher",        "peer tap", "scheduler"};
  for (size_t i = 0; i < node.actors.size(); ++i) watch_end(index, node.actors[i], names[i]);
  if (index != 0) net_->dial(index);
}

void Cluster::start_head_actors() {
  witness_->head_started();
  if (!ledger_) {  // the disk, which outlives heads
    auto store = LedgerStore::open(":memory:");
    const auto storage = owned_by(
        kDisk, owned(system().spawn(ledger_actor, std::make_shared<std::unique_ptr<LedgerStore>>(
                                                      std::move(store).value()))));
    ledger_ = owned_by(kDisk, owned(system().spawn(ledger_tap, storage, witness_, ledger_trouble_,
                                                   options_.plant)));
  }
  GatewayOptions gateway;
  gateway.self = nodes_[0].id;
  gateway.deployment = "tiny";
  gateway.ledger = ledger_;
  gateway.limits.context_max = kContext;
  gateway_ = owned_by(0, system().spawn(gateway_actor, gateway));
  const Incarnation batcher_life{++last_life_};
  batcher_ = owned_by(0, system().spawn(batcher_actor, BatcherOptions{.limits = limits_of(options_),
                                                                      .incarnation = batcher_life,
                                                                      .router = nodes_[0].router,
                                                                      .listener = gateway_}));
  start_scheduler(batcher_life);
  const auto model = open_once(test::tiny_model_path(), "");
  vocabulary_ = model.value()->config.vocabulary;
  static const auto codec =
      std::make_shared<PromptCodec>(PromptCodec::from(*model.value()).value());
  caf::anon_send(gateway_, GatewayBinding{batcher_, scheduler_, codec});
}

void Cluster::start_scheduler(Incarnation batcher_life) {
  const Node& head = nodes_[0];
  SchedulerOptions scheduling;
  scheduling.cluster_id = "sim";
  scheduling.self = head.id;
  scheduling.deployment.name = "tiny";
  scheduling.deployment.model_path = test::tiny_model_path();
  scheduling.deployment.stages = options_.stages;
  scheduling.deployment.nodes_expected = options_.nodes;
  scheduling.deployment.kv_blocks = kBlocks;
  scheduling.deployment.journal_bytes = options_.journal_bytes;
  scheduling.deployment.standby = options_.standby;
  scheduling.batcher_incarnation = batcher_life;
  scheduling.batcher_address = head.transport->address();
  scheduling.peer = owned_by(
      0, system().spawn(peer_tap,
                        PeerTapOptions{.peer = head.peer,
                                       .witness = witness_,
                                       .life_of = [this](const NodeId& id) { return life_of(id); },
                                       .plant = options_.plant}));
  scheduling.health = head.health;
  scheduling.ledger = ledger_;
  scheduling.registry = head.registry;
  scheduling.batcher = batcher_;
  scheduling.gateway = gateway_;
  scheduler_ = owned_by(0, system().spawn(scheduler_actor, scheduling));
}

}  // namespace troupe::sim

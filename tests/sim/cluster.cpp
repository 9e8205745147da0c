#include "tests/sim/cluster.h"

#include <fmt/format.h>
#include <caf/send.hpp>

#include "actors/batcher.h"
#include "actors/health_monitor.h"
#include "actors/ledger.h"
#include "actors/model_registry.h"
#include "actors/node.h"
#include "actors/scheduler.h"
#include "actors/supervisor.h"
#include "tests/sim/fake_stage.h"

namespace troupe::sim {
namespace {

constexpr uint32_t kBlocks = 64;
constexpr uint32_t kContext = 256;
constexpr Duration kBeat = 25ms;

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

}  // namespace

class Cluster::Wire final : public PeerWire {
 public:
  Wire(Cluster& cluster, bool head, uint64_t life) : cluster_(cluster), head_(head), life_(life) {}
  Result<void> send(LinkId link, ControlMessage message) override {
    const auto found = cluster_.links_.find(link);
    if (found == cluster_.links_.end() || (!head_ && found->second.worker_life != life_))
      return Error{ErrorCode::kUnavailable, "the link is down"};
    cluster_.deliver(link, !head_, std::move(message));
    return {};
  }
  void close(LinkId link, std::string why) override { cluster_.disconnect(link, why); }

 private:
  Cluster& cluster_;
  const bool head_;
  const uint64_t life_;
};

Cluster::Cluster(const ClusterOptions& options)
    : Stagehand(options.seed), options_(options), draw_(options.seed * 7919 + 1) {
  hub_ = std::make_unique<LoopbackHub>(LoopbackPump::kByHand);
  nodes_.resize(options.nodes);
  for (uint32_t i = 0; i < options.nodes; ++i) nodes_[i].id = fmt::format("node-{}", i + 1);
  start(0);
  start_head_actors();
  for (uint32_t i = 1; i < options.nodes; ++i) start(i);
  after(kBeat, [this] { beat(); });
}

Cluster::~Cluster() {
  ending_ = true;
  gateway_ = nullptr;
  batcher_ = nullptr;
  scheduler_ = nullptr;
  ledger_ = nullptr;
  for (Node& node : nodes_) {
    for (const auto& actor : node.actors)
      caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
    node.actors.clear();
    node.peer = nullptr;
    node.health = nullptr;
    node.supervisor = nullptr;
    node.node = nullptr;
    node.registry = nullptr;
  }
  end_all();
  for (Node& node : nodes_)
    if (node.router) node.router->detach();
}

void Cluster::start(uint32_t index) {
  Node& node = nodes_[index];
  caf::actor_system& actors = system();
  node.life = ++last_life_;
  node.router = std::make_shared<FrameRouter>();
  node.transport = std::make_shared<FaultyTransport>(
      *node.router, draw_(), options_.odds,
      [this](TransportEvents& events) { return hub_->attach(events); });
  node.router->attach(node.transport);
  node.transport->cut_outgoing(node.is_cut);
  node.transport->cut_incoming(node.is_cut);
  node.health = of_node(index, actors.spawn(health_monitor, HealthOptions{}));
  node.registry = of_node(index, actors.spawn(model_registry, RegistryOptions{}));
  PeerActorOptions peer;
  peer.wire = std::make_shared<Wire>(*this, index == 0, node.life);
  peer.role = index == 0 ? PeerRole::kHead : PeerRole::kWorker;
  peer.self = node.id;
  peer.incarnation = Incarnation{node.life};
  node.peer = of_node(index, actors.spawn(peer_actor, peer));
  SupervisorOptions supervision;
  supervision.self = node.id;
  supervision.peer = node.peer;
  supervision.health = node.health;
  supervision.allow_faults = true;
  supervision.new_incarnation = [this] { return Incarnation{++last_life_}; };
  supervision.spawner = [this, router = node.router, registry = node.registry,
                         address = node.transport->address()](const StageSpec& spec,
                                                              Incarnation life) {
    return system().spawn(stage_actor, StageOptions{.spec = spec,
                                                    .incarnation = life,
                                                    .router = router,
                                                    .registry = registry,
                                                    .data_address = address,
                                                    .process = 1,
                                                    .open_max = 300s,
                                                    .compute = inline_compute(),
                                                    .programs = fake_programs(options_.plant)});
  };
  node.supervisor = of_node(index, actors.spawn(supervisor, supervision));
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
      if (nodes_[index].life == life) crash(index);
    });
  };
  node.node = of_node(index, actors.spawn(node_actor, options));
  BindPeerListeners listeners;
  listeners.children = node.supervisor;
  listeners.upstream = node.node;
  if (index == 0) return;  // bound with the scheduler
  caf::anon_send(node.peer, listeners);
  connect(index);
}

void Cluster::start_head_actors() {
  caf::actor_system& actors = system();
  const Node& head = nodes_[0];
  const Incarnation batcher_life{++last_life_};
  auto store = LedgerStore::open(":memory:");
  ledger_ = of_node(0, actors.spawn(ledger_actor, std::make_shared<std::unique_ptr<LedgerStore>>(
                                                      std::move(store).value())));
  GatewayOptions gateway;
  gateway.self = head.id;
  gateway.deployment = "tiny";
  gateway.ledger = ledger_;
  gateway.limits.context_max = kContext;
  gateway_ = of_node(0, actors.spawn(gateway_actor, gateway));
  batcher_ = of_node(0, actors.spawn(batcher_actor, BatcherOptions{.limits = limits_of(options_),
                                                                   .incarnation = batcher_life,
                                                                   .router = head.router,
                                                                   .listener = gateway_}));
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
  scheduling.peer = head.peer;
  scheduling.health = head.health;
  scheduling.ledger = ledger_;
  scheduling.registry = head.registry;
  scheduling.batcher = batcher_;
  scheduling.gateway = gateway_;
  scheduler_ = of_node(0, actors.spawn(scheduler_actor, scheduling));
  const auto model = open_model(test::tiny_model_path(), "");
  vocabulary_ = model.value()->config.vocabulary;
  auto codec = PromptCodec::from(*model.value());
  caf::anon_send(gateway_, GatewayBinding{batcher_, scheduler_,
                                          std::make_shared<PromptCodec>(std::move(codec).value())});
  BindPeerListeners listeners;
  listeners.nodes = scheduler_;
  listeners.children = head.supervisor;
  listeners.upstream = head.node;
  caf::anon_send(head.peer, listeners);
}

// A worker dials its head, again and again while it is cut off.
void Cluster::connect(uint32_t worker) {
  const Node& node = nodes_[worker];
  if (ending_ || node.life == 0) return;
  if (node.is_cut) {
    after(200ms, [this, worker, life = node.life] {
      if (nodes_[worker].life == life) connect(worker);
    });
    return;
  }
  for (const auto& [link, known] : links_)
    if (known.worker == worker && known.worker_life == node.life) return;
  const LinkId link{++last_link_};
  links_[link] = Link{worker, node.life, {now(), now()}, {}};
  after(1ms, [this, link, worker] {
    if (!links_.contains(link)) return;
    PeerHello from_worker, from_head;
    from_worker.node = nodes_[worker].id;
    from_worker.incarnation = Incarnation{nodes_[worker].life};
    from_head.node = nodes_[0].id;
    from_head.incarnation = Incarnation{nodes_[0].life};
    caf::anon_send(nodes_[0].peer, LinkUp{link, from_worker});
    caf::anon_send(nodes_[worker].peer, LinkUp{link, from_head});
  });
}

void Cluster::disconnect(LinkId link, const std::string& why) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  const Link gone = found->second;
  links_.erase(found);
  const Error error{ErrorCode::kUnavailable, why};
  caf::anon_send(nodes_[0].peer, LinkDown{link, error});
  const Node& node = nodes_[gone.worker];
  if (node.life != gone.worker_life) return;
  caf::anon_send(node.peer, LinkDown{link, error});
  after(100ms, [this, worker = gone.worker, life = gone.worker_life] {
    if (nodes_[worker].life == life) connect(worker);
  });
}

void Cluster::deliver(LinkId link, bool to_head, ControlMessage message) {
  Link& known = links_.at(link);
  const auto arrive = [this, link, to_head, message = std::move(message)] {
    const auto found = links_.find(link);
    if (found == links_.end()) return;
    const Node& to = nodes_[to_head ? 0 : found->second.worker];
    caf::anon_send(to.peer, LinkSaid{link, message});
  };
  if (nodes_[known.worker].is_cut) {
    known.held.push_back(arrive);
    return;
  }
  Instant& last = known.last_due[to_head ? 0 : 1];
  last = std::max(last, now() + std::chrono::microseconds(100 + draw_() % 2000));
  events_.emplace(last, arrive);
}

void Cluster::beat() {
  if (ending_) return;
  for (const auto& [link, known] : links_) {
    Node& worker = nodes_[known.worker];
    if (worker.is_cut || worker.life != known.worker_life) continue;
    Beat to_head, to_worker;
    to_head.number = ++worker.beat;
    to_worker.number = ++nodes_[0].beat;
    caf::anon_send(nodes_[0].health, BeatHeard{link, to_head, now()});
    caf::anon_send(worker.health, BeatHeard{link, to_worker, now()});
  }
  after(kBeat, [this] { beat(); });
}

void Cluster::crash(uint32_t index) {
  Node& node = nodes_[index];
  TROUPE_CHECK(index != 0, "the head is not crashed here");
  if (node.life == 0) return;
  for (const auto& actor : node.actors)
    caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
  node.actors.clear();
  node.peer = nullptr;
  node.health = nullptr;
  node.supervisor = nullptr;
  node.node = nullptr;
  node.registry = nullptr;
  node.router->detach();
  node.transport = nullptr;
  node.life = 0;
  std::vector<LinkId> gone;
  for (const auto& [link, known] : links_)
    if (known.worker == index) gone.push_back(link);
  for (const LinkId link : gone) disconnect(link, "the peer closed the connection");
  after(std::chrono::milliseconds(20 + draw_() % 800), [this, index] {
    if (!ending_ && nodes_[index].life == 0) start(index);
  });
}

void Cluster::cut(uint32_t index, bool cut) {
  Node& node = nodes_[index];
  if (index == 0 || node.is_cut == cut) return;
  node.is_cut = cut;
  if (node.transport) {
    node.transport->cut_outgoing(cut);
    node.transport->cut_incoming(cut);
  }
  if (cut) return;
  for (auto& [link, known] : links_) {
    if (known.worker != index) continue;
    for (auto& arrive : std::exchange(known.held, {})) events_.emplace(now(), std::move(arrive));
  }
}

void Cluster::heal() {
  options_.odds = {};
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    cut(i, false);
    if (nodes_[i].transport) nodes_[i].transport->set_odds({});
  }
}

bool Cluster::pump() {
  for (Node& node : nodes_)
    if (node.transport) node.transport->pump(now());
  return hub_->pump(1) > 0;
}

void Cluster::after(Duration delay, std::function<void()> action) {
  events_.emplace(now() + delay, std::move(action));
}

bool Cluster::run(Duration limit, const std::function<bool()>& done) {
  const Instant end = now() + limit;
  auto& clock = scheduler().clock();
  for (;;) {
    settle();
    if (done()) return true;
    Instant next = end;
    if (!events_.empty()) next = std::min(next, events_.begin()->first);
    for (const Node& node : nodes_)
      if (node.transport)
        if (const auto due = node.transport->next_due())
          next = std::min(next, std::max(*due, now()));
    const bool timer = !clock.schedule().empty() && clock.schedule().begin()->first <= next;
    if (!timer && next >= end) return false;
    if (timer) {
      scheduler().trigger_timeout();
      continue;
    }
    clock.current_time = std::max(clock.current_time, caf::actor_clock::time_point{next});
    while (!events_.empty() && events_.begin()->first <= now()) {
      const auto action = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      action();
    }
  }
}

void Cluster::generate(GenerateCall call, const std::shared_ptr<test::RecordingSink>& sink) {
  caf::anon_send(gateway_, GenerateOrder{std::move(call), sink});
}

void Cluster::detach(const RequestId& id, const std::shared_ptr<test::RecordingSink>& sink) {
  caf::anon_send(gateway_, DetachSink{id, sink.get()});
  settle();
}

void Cluster::operate(OperatorCall call) {
  caf::anon_send(gateway_, OperatorRequest{std::move(call), [](const Result<void>&) {}});
}

void Cluster::inject(uint32_t stage, const std::string& fault) {
  caf::anon_send(gateway_, InjectOrder{FaultCall{.model = "", .stage = stage, .text = fault},
                                       [](const Result<void>&) {}});
}

ClusterStatus Cluster::status() {
  auto answer = std::make_shared<std::optional<ClusterStatus>>();
  caf::anon_send(gateway_, StatusOrder{[answer](Result<ClusterStatus> status) {
                   if (status.ok()) *answer = status.value();
                 }});
  run(10s, [&] { return answer->has_value(); });
  return answer->value_or(ClusterStatus{});
}

}  // namespace troupe::sim

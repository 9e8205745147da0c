// The steps that build a NodeRuntime. Each is short and says what it makes of what.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "actors/batcher.h"
#include "actors/exceptions.h"
#include "actors/ledger.h"
#include "actors/model_registry.h"
#include "actors/node.h"
#include "actors/replica_spec.h"
#include "actors/scheduler.h"
#include "actors/stage.h"
#include "actors/supervisor.h"
#include "apps/node/runtime_parts.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/version.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include "transport/ucx/ucx_transport.h"

namespace troupe {
namespace {

uint64_t meminfo_bytes(const std::string& key) {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  return 0;
}

uint32_t kv_blocks_of(const DeploymentConfig& deployment) {
  const auto blocks_per_stream =
      (deployment.context + kKvBlockTokens - 1) / static_cast<uint32_t>(kKvBlockTokens);
  return static_cast<uint32_t>(deployment.streams * blocks_per_stream);
}

BatchingLimits limits_of(const NodeConfig& config) {
  const DeploymentConfig& deployment = config.deployment;
  BatchingLimits limits;
  limits.stages = deployment.stages;
  limits.in_flight_max = deployment.stages + 1;
  limits.rows_max = deployment.rows_max;
  limits.prefill_chunk_max = deployment.prefill_chunk;
  limits.running_max = deployment.streams;
  limits.queue_max = config.limits.waiting_max;
  limits.context_max = deployment.context;
  limits.kv_blocks = kv_blocks_of(deployment);
  return limits;
}

DeploymentOptions options_of(const DeploymentConfig& deployment) {
  return DeploymentOptions{.name = deployment.name,
                           .model_path = deployment.model,
                           .stages = deployment.stages,
                           .nodes_expected = deployment.nodes_expected,
                           .layer_split = deployment.layer_split,
                           .kv_blocks = kv_blocks_of(deployment),
                           .threads = deployment.threads,
                           .rows_max = deployment.rows_max,
                           .journal_bytes = deployment.journal_bytes,
                           .standby = deployment.standby,
                           .kernels = deployment.kernels};
}

}  // namespace

UcxNetwork ucx_network(const TransportConfig& transport) {
  UcxNetwork network;
  network.interface = transport.interface;
  unsigned first = 0, last = 0;
  if (std::sscanf(transport.port_range.c_str(), "%u-%u", &first, &last) == 2) {
    network.port_first = static_cast<uint16_t>(first);
    network.port_last = static_cast<uint16_t>(last);
  }
  return network;
}

ActorConfig::ActorConfig() {
  // Sharing wakes idle workers at once and costs nothing when idle; a bounded throughput keeps one
  // busy actor from starving the others (docs/ARCHITECTURE.md, "CAF").
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", size_t{4});
  set("scheduler.max-throughput", size_t{50});
}

uint64_t NodeRuntime::Parts::digest_key() const {
  return digest64(as_byte_span(config().cluster.id));
}

NodeInventory NodeRuntime::Parts::inventory() const {
  NodeInventory inventory;
  inventory.memory_bytes = meminfo_bytes("MemTotal");
  const uint64_t available = std::min(meminfo_bytes("MemAvailable"), inventory.memory_bytes);
  inventory.memory_free_bytes = config().node.memory_bytes > 0
                                    ? std::min(config().node.memory_bytes, inventory.memory_bytes)
                                    : available / 4 * 3;
  inventory.cores = std::max(1U, std::thread::hardware_concurrency());
  const auto operators = make_operators({});
  inventory.kernels = operators.ok() ? std::string(operators.value()->name()) : "none";
  inventory.software = kVersion;
  inventory.process = static_cast<uint64_t>(::getpid());
  return inventory;
}

Result<void> NodeRuntime::Parts::start_transport() {
  if (config().transport.kind == TransportKind::kLoopback || !options.listens) {
    hub = std::make_unique<LoopbackHub>(LoopbackPump::kThread);
    transport = hub->attach(*router);
    router->attach(transport);
    return {};
  }
  UcxOptions ucx;
  ucx.network = ucx_network(config().transport);
  ucx.key = digest_key();
  TROUPE_TRY(transport, make_ucx_transport(ucx, *router));
  router->attach(transport);
  return {};
}

void NodeRuntime::Parts::start_node_actors() {
  const PeerRole role = is_stage()  ? PeerRole::kStage
                        : is_head() ? PeerRole::kHead
                                    : PeerRole::kWorker;
  health = actors->spawn(health_monitor, HealthOptions{});
  remember("health monitor", health);
  registry = actors->spawn(model_registry, RegistryOptions{});
  remember("model registry", registry);
  peer = actors->spawn(peer_actor, PeerActorOptions{.wire = wire,
                                                    .role = role,
                                                    .self = self(),
                                                    .incarnation = incarnation,
                                                    .listen = config().node.listen});
  remember("peer", peer);

  SupervisorOptions supervision;
  supervision.self = self();
  supervision.peer = peer;
  supervision.health = health;
  supervision.allow_faults = config().faults.allow_injection;
  supervision.new_incarnation = [] { return Incarnation{random_u64()}; };
  supervision.spawner = [this](const StageSpec& spec, Incarnation life) {
    const FaultsConfig& faults = config().faults;
    return actors->spawn(
        stage_actor,
        StageOptions{.spec = spec,
                     .incarnation = life,
                     .router = router,
                     .registry = registry,
                     .data_address = transport->address(),
                     .process = static_cast<uint64_t>(::getpid()),
                     .open_max = 300s,
                     .compute = threaded_compute(board),
                     .programs = transformer_programs(
                         {options.stage ? options.stage->memory : -1, faults.split_k}),
                     .poison_seed = spec.stage == faults.poison_stage ? faults.poison_seed : 0});
  };
  if (!is_stage() && options.listens && config().deployment.isolation == Isolation::kProcess) {
    launcher = std::make_shared<ProcessLauncher>(
        LauncherOptions{options.program, options.stage_arguments,
                        [wire = wire](LinkSockets sockets) { return wire->adopt(sockets); }});
    supervision.launcher = launcher;
  }
  supervisor = actors->spawn(troupe::supervisor, supervision);
  remember("supervisor", supervisor);

  NodeOptions node_options;
  node_options.self = self();
  node_options.peer = peer;
  node_options.supervisor = supervisor;
  node_options.health = health;
  node_options.router = router;
  node_options.inventory = [this] { return inventory(); };
  node_options.reports_inventory = !is_stage();
  node_options.evicted = [end = ended](std::string why) {
    end(EndReason::kEvicted, std::move(why));
  };
  if (is_stage())
    node_options.upstream_lost = [end = ended](std::string why) {
      end(EndReason::kStopped, "the daemon is gone: " + why);
    };
  if (is_stage()) node_options.upstream_max = 10s;
  node = actors->spawn(node_actor, node_options);
  remember("node", node);
}

Result<void> NodeRuntime::Parts::start_head_actors() {
  // The head checks the file before anything is placed: a wrong path or a broken file is an error
  // at the start.
  TROUPE_TRY(const ModelPtr model, open_model(config().deployment.model, ""));
  TROUPE_TRY(PromptCodec codec, PromptCodec::from(*model));
  if (config().deployment.context > model->config.context_max) {
    log_warning("trouped", "deployment.context is {}, the model was made for {}: that is used",
                config().deployment.context, model->config.context_max);
    options.config.deployment.context = model->config.context_max;
  }
  const DeploymentOptions deployed = options_of(config().deployment);
  const auto placeable = replica_spec(deployed, *model);
  if (!placeable.ok()) return placeable.error();
  const std::string ledger_path =
      config().node.state.empty() ? ":memory:" : config().node.state + "/ledger.sqlite";
  TROUPE_TRY(auto store, LedgerStore::open(ledger_path));
  ledger =
      actors->spawn(ledger_actor, std::make_shared<std::unique_ptr<LedgerStore>>(std::move(store)));
  remember("ledger", ledger);

  GatewayOptions gateway_options;
  gateway_options.self = self();
  gateway_options.deployment = config().deployment.name;
  gateway_options.ledger = ledger;
  gateway_options.profile = "exact/1 wire=f32 kv=f16";
  gateway_options.limits.context_max = config().deployment.context;
  gateway_options.limits.queue_max = config().limits.waiting_max + config().deployment.streams;
  gateway = actors->spawn(gateway_actor, gateway_options);
  remember("gateway", gateway);

  const Incarnation batcher_life{random_u64()};
  batcher = actors->spawn(batcher_actor, BatcherOptions{.limits = limits_of(config()),
                                                        .incarnation = batcher_life,
                                                        .router = router,
                                                        .listener = gateway});
  remember("batcher", batcher);

  SchedulerOptions scheduling;
  scheduling.cluster_id = config().cluster.id;
  scheduling.self = self();
  scheduling.deployment = deployed;
  scheduling.batcher_incarnation = batcher_life;
  scheduling.batcher_address = transport->address();
  scheduling.peer = peer;
  scheduling.health = health;
  scheduling.ledger = ledger;
  scheduling.registry = registry;
  scheduling.batcher = batcher;
  scheduling.gateway = gateway;
  scheduler = actors->spawn(scheduler_actor, scheduling);
  remember("scheduler", scheduler);
  caf::anon_send(
      gateway, GatewayBinding{batcher, scheduler, std::make_shared<PromptCodec>(std::move(codec))});
  gateway_port =
      std::make_unique<GatewayPort>(gateway, [end = ended](const ShutdownCall&) -> Result<void> {
        end(EndReason::kStopped, "a client asked for it");
        return {};
      });
  return {};
}

Result<void> NodeRuntime::Parts::start_links() {
  peer_port.attach(peer, health);
  // Who hears of whom must be known before the first peer can say anything.
  BindPeerListeners listeners;
  if (is_head()) listeners.nodes = scheduler;
  listeners.children = supervisor;
  listeners.upstream = node;
  caf::anon_send(peer, listeners);
  if (!options.listens) {
    wire->set(nullptr);
    return {};
  }
  PeerOptions peers;
  peers.hello.cluster_id = config().cluster.id;
  peers.hello.node = self();
  peers.hello.incarnation = incarnation;
  peers.hello.listen = is_stage() ? "" : config().node.listen;
  peers.listen = is_stage() ? "" : config().node.listen;
  peers.progress = [board = board] { return board->read(); };
  auto started = PeerLinks::start(peers, peer_port);
  if (!started.ok()) {
    wire->set(nullptr);
    return started.error();
  }
  links = std::move(started).value();
  wire->set(links.get());
  if (is_stage()) return links->adopt(options.stage->sockets);
  if (!is_head()) return links->dial(config().node.head);
  return {};
}

Result<void> NodeRuntime::Parts::start_rpc() {
  if (config().rpc.listen.empty() || !options.listens) return {};
  RpcOptions rpc_options;
  rpc_options.listen = config().rpc.listen;
  rpc_options.node = self();
  rpc_options.version = kVersion;
  rpc_options.fault_injection = config().faults.allow_injection;
  rpc_options.connections_max = config().limits.clients_max;
  TROUPE_TRY(rpc, RpcServer::start(rpc_options, *gateway_port));
  return {};
}

}  // namespace troupe

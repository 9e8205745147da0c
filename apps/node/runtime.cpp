#include "apps/node/runtime.h"

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include "actors/guardian.h"
#include "apps/node/runtime_parts.h"
#include "base/log.h"
#include "base/prng.h"

namespace troupe {

Result<std::unique_ptr<NodeRuntime>> NodeRuntime::start(RuntimeOptions options, Ended ended) {
  auto parts = std::make_unique<Parts>();
  parts->options = std::move(options);
  parts->ended = std::move(ended);
  parts->incarnation = Incarnation{random_u64()};
  parts->actors = std::make_unique<caf::actor_system>(parts->actor_config);
  std::unique_ptr<NodeRuntime> runtime(new NodeRuntime(std::move(parts)));
  Parts& p = *runtime->parts_;
  TROUPE_TRY_VOID(p.start_transport());  // tensors: UCX, or inside this process
  p.start_node_actors();                 // health, registry, peer, supervisor, node
  if (p.is_head()) TROUPE_TRY_VOID(p.start_head_actors());  // ledger, gateway, batcher, scheduler
  TROUPE_TRY_VOID(p.start_links());                         // control messages and beats
  if (p.is_head()) TROUPE_TRY_VOID(p.start_rpc());          // clients
  GuardianOptions guard;
  guard.watched = {p.spawned.begin(), p.spawned.end()};
  guard.died = [ended = p.ended](std::string why) { ended(EndReason::kFailed, std::move(why)); };
  p.remember("guardian", p.actors->spawn(guardian, guard));
  return runtime;
}

NodeRuntime::NodeRuntime(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
NodeRuntime::~NodeRuntime() {
  stop();
}
void NodeRuntime::stop() {
  parts_->stop();
}
ClusterRequests* NodeRuntime::requests() {
  return parts_->gateway_port.get();
}
std::string NodeRuntime::listen_address() const {
  return parts_->links ? parts_->links->listen_address() : std::string();
}
std::string NodeRuntime::rpc_address() const {
  return parts_->rpc ? parts_->rpc->address() : std::string();
}

void NodeRuntime::Parts::stop() {
  if (std::exchange(stopped, true)) return;
  wire->set(nullptr);  // if the start failed before there were links: nobody must wait for them
  // Clients first: running streams get their time, the rest is cut and told so.
  if (rpc) rpc->stop(config().limits.drain_deadline);
  if (gateway) caf::anon_send(gateway, Shutdown{});
  // Then the stages: a worker's are placed elsewhere first, within reason.
  if (node) {
    const Duration leave_max =
        is_head() || is_stage() || !options.listens ? Duration{0} : Duration{1500ms};
    caf::scoped_actor waiting{*actors};
    waiting->request(node, caf::timespan{leave_max + 4s}, LeaveCluster{leave_max})
        .receive([](const LeftCluster&) {},
                 [](const caf::error&) { log_warning("runtime", "stages did not end in time"); });
  }
  // Then the actors, which may still use what is below them; then the threads that bring events in,
  // whose messages to ended actors are dropped; then the handles, and the system.
  rpc = nullptr;
  gateway_port = nullptr;
  for (auto one = spawned.rbegin(); one != spawned.rend(); ++one)
    caf::anon_send_exit(one->second, caf::exit_reason::user_shutdown);
  spawned.clear();
  health = nullptr;
  registry = nullptr;
  peer = nullptr;
  supervisor = nullptr;
  node = nullptr;
  ledger = nullptr;
  gateway = nullptr;
  batcher = nullptr;
  scheduler = nullptr;
  actors->await_all_actors_done();
  launcher = nullptr;
  links = nullptr;
  router->detach();
  transport = nullptr;  // its thread ends here
  peer_port.detach();
  actors = nullptr;
}

}  // namespace troupe

// The parts of a NodeRuntime and the steps that build them; only runtime*.cpp include this.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <unistd.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "actors/dataplane/frame_router.h"
#include "actors/dataplane/stage_compute.h"
#include "actors/gateway.h"
#include "actors/health_monitor.h"
#include "actors/messages.h"
#include "actors/peer.h"
#include "actors/rpc/server.h"
#include "apps/node/process_launcher.h"
#include "apps/node/runtime.h"
#include "transport/loopback.h"

namespace troupe {

// The peer links, which start after the actors that talk to them.
class LateWire final : public PeerWire {
 public:
  // Null: there are none, and there never will be. Called by one thread; only the first call
  // counts.
  void set(PeerLinks* links) {
    if (!std::exchange(set_, true)) ready_.set_value(links);
  }
  Result<void> send(LinkId link, ControlMessage message) override {
    PeerLinks* links = links_.get();
    if (links == nullptr) return Error{ErrorCode::kUnavailable, "this process has no peers"};
    return links->send(link, std::move(message));
  }
  void close(LinkId link, std::string why) override {
    if (PeerLinks* links = links_.get()) links->close(link, std::move(why));
  }
  // For stage processes, which may be started before the links are.
  Result<void> adopt(LinkSockets sockets) {
    if (PeerLinks* links = links_.get()) return links->adopt(sockets);
    ::close(sockets.messages);
    ::close(sockets.beats);
    return Error{ErrorCode::kUnavailable, "this process has no peer links"};
  }

 private:
  bool set_ = false;
  std::promise<PeerLinks*> ready_;
  std::shared_future<PeerLinks*> links_ = ready_.get_future().share();
};

struct ActorConfig : caf::actor_system_config {
  ActorConfig();
};

struct NodeRuntime::Parts {
  RuntimeOptions options;
  Ended ended;
  Incarnation incarnation;

  // In order of construction; destroyed from the end.
  ActorConfig actor_config;
  std::unique_ptr<caf::actor_system> actors;
  std::shared_ptr<ProgressBoard> board = std::make_shared<ProgressBoard>();
  std::unique_ptr<LoopbackHub> hub;
  std::shared_ptr<FrameRouter> router = std::make_shared<FrameRouter>();
  PeerPort peer_port;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<LateWire> wire = std::make_shared<LateWire>();
  std::shared_ptr<ProcessLauncher> launcher;
  std::unique_ptr<PeerLinks> links;
  std::unique_ptr<GatewayPort> gateway_port;
  std::unique_ptr<RpcServer> rpc;

  HealthMonitor health;
  ModelRegistry registry;
  PeerActor peer;
  Supervisor supervisor;
  NodeActor node;
  LedgerActor ledger;
  GatewayActor gateway;
  BatcherActor batcher;
  SchedulerActor scheduler;
  std::vector<std::pair<std::string, caf::actor>> spawned;  // in order
  bool stopped = false;

  const NodeConfig& config() const { return options.config; }
  bool is_stage() const { return options.stage.has_value(); }
  bool is_head() const { return !is_stage() && config().node.role == NodeRole::kHead; }
  NodeId self() const { return is_stage() ? options.stage->id : config().node.id; }
  uint64_t digest_key() const;

  // The steps, in this order.
  Result<void> start_transport();
  void start_node_actors();
  Result<void> start_head_actors();
  Result<void> start_links();
  Result<void> start_rpc();

  void stop();
  template <class Actor>
  void remember(const std::string& name, const Actor& actor) {
    spawned.emplace_back(
        name, caf::actor_cast<caf::actor>(caf::actor_cast<caf::strong_actor_ptr>(actor)));
  }
  NodeInventory inventory() const;
};

}  // namespace troupe

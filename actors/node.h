// The node actor: carries out what the head (or, in a stage process, the daemon) says: load a
// stage, take a view, end a stage, leave. It reports what the node has when it joins.
#pragma once

#include <functional>
#include <memory>

#include "actors/messages.h"
#include "actors/owed_promise.h"

namespace troupe {

struct NodeOptions {
  NodeId self;
  PeerActor peer;
  Supervisor supervisor;
  HealthMonitor health;
  std::shared_ptr<FrameRouter> router;
  std::function<NodeInventory()> inventory;  // measured when asked
  bool reports_inventory = true;             // a stage process has none
  Duration load_max = 300s;
  // The head declared this life dead: drop everything and come back as a new one.
  std::function<void(std::string why)> evicted;
  // The upstream is gone. A stage process ends; a worker keeps its stages, the head may come back.
  std::function<void(std::string why)> upstream_lost;
  Duration upstream_max{0};  // without an upstream for so long after the start it is lost; 0: never
};

struct NodeActorState {
  static inline const char* name = "node";
  NodeActor::stateful_pointer<NodeActorState> self = nullptr;
  NodeOptions options;
  bool has_upstream = false;
  uint32_t stages = 0;  // hosted for the head, roughly: for an orderly leave
  OwedPromise<LeftCluster> leaving;
  Instant leave_deadline;

  void joined(const PeerJoined& event);
  void said(const PeerSaid& words, OwedPromise<PeerAnswer> promise);
  void assign(const AssignStage& order, OwedPromise<PeerAnswer> promise);
  void install(const InstallView& order, OwedPromise<PeerAnswer> promise);
  void leave(Duration deadline, OwedPromise<LeftCluster> promise);
  void end_stages();
};

NodeActor::behavior_type node_actor(NodeActor::stateful_pointer<NodeActorState> self,
                                    NodeOptions options);

}  // namespace troupe

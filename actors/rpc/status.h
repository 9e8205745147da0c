// What a cluster tells about itself: everything `troupe status` shows, as plain values. The
// scheduler's side fills it in, the RPC server writes it into schemas/client.capnp, the client
// library reads it back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"

namespace troupe {

enum class NodeState : uint8_t {
  kAlive,    // heard in time
  kSuspect,  // silent for longer than expected; gets no new work
  kDead,     // excluded: its stages are placed elsewhere
};

enum class DeploymentState : uint8_t {
  kLoading,     // stages read their weights
  kServing,     // takes requests
  kRecovering,  // a stage was lost; running requests go on as soon as the new view stands
  kFailed,      // cannot be placed or loaded; `detail` says why
  kStopped,     // taken down on request
};

// Of the one who follows a stage, or will.
enum class StandbyState : uint8_t {
  kNone,
  kLoading,  // it is being started; it cannot take the seat yet
  kFilling,  // it could take the seat, but lacks more than a few rows
  kReady,    // it could take the seat and lacks a few rows at most
};

struct NodeStatus {
  std::string id{};
  std::string role{};  // "head" or "worker"
  NodeState state = NodeState::kAlive;
  std::string address{};     // of its peer link, host:port
  uint64_t incarnation = 0;  // of its daemon; shown as 16 hexadecimal digits
  uint64_t process = 0;      // process id of its daemon
  uint64_t memory_total_bytes = 0;
  uint64_t memory_free_bytes = 0;
  uint32_t cores = 0;
  uint64_t uptime_ms = 0;
  uint32_t restarts = 0;  // of stages, by this node's supervisor
  bool draining = false;  // takes no new stages; those it has are moving away
};

struct StageStatus {
  uint32_t index = 0;
  std::string node{};
  uint32_t layer_first = 0;  // layers [layer_first, layer_last)
  uint32_t layer_last = 0;
  uint64_t process = 0;  // 0: runs inside its daemon
  uint64_t incarnation = 0;
  uint64_t steps = 0;            // micro-batches executed by this incarnation
  uint64_t tokens = 0;           // token rows executed by this incarnation
  double tokens_per_second = 0;  // rows executed, over the last few seconds
  double busy_fraction = 0;      // [0, 1]: share of the last few seconds spent computing
  double hop_p50_ms = 0;         // from the previous stage's send to this one's receipt
  double hop_p99_ms = 0;
  double step_p50_ms = 0;  // computing one micro-batch
  double step_p99_ms = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t resident_bytes = 0;  // of its process
  uint64_t fenced_frames = 0;   // dropped because they came from an older view or incarnation
  std::string moving_to{};      // where it is being placed, if that is another node; else empty
  std::string move_trouble{};   // why a planned move did not take it away; else empty
  std::string standby{};        // node of who follows it and could take its seat; empty: nobody
  uint64_t standby_behind = 0;  // rows of KV that the standby has not acknowledged
  StandbyState standby_state = StandbyState::kNone;
  std::string standby_trouble{};  // why it has none and none is being started; else empty
};

struct BatcherStatus {
  std::string node{};
  uint32_t requests_queued = 0;
  uint32_t requests_running = 0;
  uint32_t micro_batches_in_flight = 0;
  uint32_t kv_blocks_used = 0;
  uint32_t kv_blocks_total = 0;
  uint64_t tokens_generated = 0;
  uint64_t tokens_replayed = 0;  // computed again after a failure
  double tokens_per_second = 0;  // generated, over the last few seconds
};

struct DeploymentStatus {
  std::string name{};
  std::string model{};     // the file's name, for people
  std::string model_id{};  // content hash
  DeploymentState state = DeploymentState::kLoading;
  std::string
      detail;  // one line for people: why it is not serving, progress of loading; may be empty
  uint64_t view = 0;
  std::vector<StageStatus> stages{};  // [stage]
  BatcherStatus batcher{};
  StandbyPolicy standby_policy = StandbyPolicy::kNone;
  uint32_t unprotected = 0;  // stages that shall have a standby and have none that could step in
};

struct ClusterEvent {
  int64_t unix_ms = 0;
  std::string text{};
};

struct ClusterStatus {
  std::string cluster_id{};
  std::string version{};         // of the answering daemon
  std::string answered_by{};     // node id
  uint64_t faults_survived = 0;  // stages and nodes lost and replaced since the head started
  std::vector<NodeStatus> nodes{};
  std::vector<DeploymentStatus> deployments{};
  std::vector<ClusterEvent> events{};  // the latest ones, oldest first
};

inline const char* to_string(NodeState state) {
  switch (state) {
    case NodeState::kAlive:
      return "alive";
    case NodeState::kSuspect:
      return "suspect";
    case NodeState::kDead:
      return "dead";
  }
  return "unknown";
}

inline const char* to_string(StandbyState state) {
  switch (state) {
    case StandbyState::kNone:
      return "none";
    case StandbyState::kLoading:
      return "loading";
    case StandbyState::kFilling:
      return "filling";
    case StandbyState::kReady:
      return "ready";
  }
  return "unknown";
}

inline const char* to_string(DeploymentState state) {
  switch (state) {
    case DeploymentState::kLoading:
      return "loading";
    case DeploymentState::kServing:
      return "serving";
    case DeploymentState::kRecovering:
      return "recovering";
    case DeploymentState::kFailed:
      return "failed";
    case DeploymentState::kStopped:
      return "stopped";
  }
  return "unknown";
}

}  // namespace troupe

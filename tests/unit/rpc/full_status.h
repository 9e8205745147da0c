// A status in which every field differs from its default and from its neighbours, and all fields as
// texts.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "actors/rpc/status.h"

namespace troupe::test {

inline ClusterStatus full_status() {
  ClusterStatus status{"cluster", "0.1.0", "node-1", 3, {}, {}, {}};
  status.nodes = {
      {"node-1", "head", NodeState::kAlive, "127.0.0.1:7420", 11, 12, 13, 14, 15, 16, 17, false},
      {"node-2", "worker", NodeState::kDead, "127.0.0.2:7420", 21, 22, 23, 24, 25, 26, 27, true}};
  StageStatus stage{0,
                    "node-1",
                    1,
                    10,
                    31,
                    32,
                    33,
                    34,
                    35.5,
                    0.25,
                    36.5,
                    37.5,
                    38.5,
                    39.5,
                    310,
                    311,
                    312,
                    313,
                    "node-2",
                    "no room",
                    "node-3",
                    314,
                    StandbyState::kFilling,
                    "no memory"};
  BatcherStatus batcher{"node-1", 41, 42, 43, 44, 45, 46, 47, 48.5};
  status.deployments = {{"smollm2",
                         "smollm2.gguf",
                         "abcd",
                         DeploymentState::kRecovering,
                         "stage 1 was lost",
                         5,
                         {stage, stage},
                         batcher,
                         StandbyPolicy::kKv,
                         49}};
  status.deployments[0].stages[1].index = 1;
  status.events = {{1700000000000, "stage 1 was lost"}, {1700000000001, "view 5"}};
  return status;
}

inline void flatten(const NodeStatus& n, std::vector<std::string>& out) {
  out.push_back(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", n.id, n.role, to_string(n.state),
                            n.address, n.incarnation, n.process, n.memory_total_bytes,
                            n.memory_free_bytes, n.cores, n.uptime_ms, n.restarts, n.draining));
}

inline void flatten(const StageStatus& s, std::vector<std::string>& out) {
  out.push_back(fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", s.index, s.node,
      s.layer_first, s.layer_last, s.process, s.incarnation, s.steps, s.tokens, s.tokens_per_second,
      s.busy_fraction, s.hop_p50_ms, s.hop_p99_ms, s.step_p50_ms, s.step_p99_ms, s.weight_bytes,
      s.kv_bytes, s.resident_bytes, s.fenced_frames, s.moving_to, s.move_trouble, s.standby,
      s.standby_behind, to_string(s.standby_state), s.standby_trouble));
}

inline std::vector<std::string> flatten(const ClusterStatus& status) {
  std::vector<std::string> out{fmt::format("{} {} {} {}", status.cluster_id, status.version,
                                           status.answered_by, status.faults_survived)};
  for (const auto& node : status.nodes) flatten(node, out);
  for (const auto& d : status.deployments) {
    out.push_back(fmt::format("{} {} {} {} {} {} {} {}", d.name, d.model, d.model_id,
                              to_string(d.state), d.detail, d.view, to_string(d.standby_policy),
                              d.unprotected));
    for (const auto& stage : d.stages) flatten(stage, out);
    const auto& b = d.batcher;
    out.push_back(fmt::format("{} {} {} {} {} {} {} {} {}", b.node, b.requests_queued,
                              b.requests_running, b.micro_batches_in_flight, b.kv_blocks_used,
                              b.kv_blocks_total, b.tokens_generated, b.tokens_replayed,
                              b.tokens_per_second));
  }
  for (const auto& event : status.events)
    out.push_back(fmt::format("{} {}", event.unix_ms, event.text));
  return out;
}

}  // namespace troupe::test

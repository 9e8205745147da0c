#include <nlohmann/json.hpp>

#include "apps/cli/status_report.h"
#include "base/ids.h"

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

Json node_json(const NodeStatus& node) {
  return {{"id", node.id},
          {"role", node.role},
          {"state", state_text(node)},
          {"address", node.address},
          {"incarnation", to_hex(node.incarnation)},
          {"process", node.process},
          {"memory_total_bytes", node.memory_total_bytes},
          {"memory_free_bytes", node.memory_free_bytes},
          {"cores", node.cores},
          {"uptime_ms", node.uptime_ms},
          {"restarts", node.restarts},
          {"draining", node.draining}};
}

Json stage_json(const StageStatus& stage) {
  return {{"index", stage.index},
          {"node", stage.node},
          {"layer_first", stage.layer_first},
          {"layer_last", stage.layer_last},
          {"process", stage.process},
          {"incarnation", to_hex(stage.incarnation)},
          {"steps", stage.steps},
          {"tokens", stage.tokens},
          {"tokens_per_second", stage.tokens_per_second},
          {"busy_fraction", stage.busy_fraction},
          {"hop_p50_ms", stage.hop_p50_ms},
          {"hop_p99_ms", stage.hop_p99_ms},
          {"step_p50_ms", stage.step_p50_ms},
          {"step_p99_ms", stage.step_p99_ms},
          {"weight_bytes", stage.weight_bytes},
          {"kv_bytes", stage.kv_bytes},
          {"resident_bytes", stage.resident_bytes},
          {"fenced_frames", stage.fenced_frames},
          {"moving_to", stage.moving_to},
          {"move_trouble", stage.move_trouble},
          {"standby", stage.standby},
          {"standby_state", to_string(stage.standby_state)},
          {"standby_behind", stage.standby_behind},
          {"standby_trouble", stage.standby_trouble}};
}

Json batcher_json(const BatcherStatus& batcher) {
  return {{"node", batcher.node},
          {"requests_queued", batcher.requests_queued},
          {"requests_running", batcher.requests_running},
          {"micro_batches_in_flight", batcher.micro_batches_in_flight},
          {"kv_blocks_used", batcher.kv_blocks_used},
          {"kv_blocks_total", batcher.kv_blocks_total},
          {"tokens_generated", batcher.tokens_generated},
          {"tokens_replayed", batcher.tokens_replayed},
          {"tokens_per_second", batcher.tokens_per_second}};
}

Json deployment_json(const DeploymentStatus& deployment) {
  Json stages = Json::array();
  for (const StageStatus& stage : deployment.stages) stages.push_back(stage_json(stage));
  return {{"name", deployment.name},
          {"model", deployment.model},
          {"model_id", deployment.model_id},
          {"state", to_string(deployment.state)},
          {"detail", deployment.detail},
          {"view", deployment.view},
          {"stages", std::move(stages)},
          {"batcher", batcher_json(deployment.batcher)},
          {"standby_policy", to_string(deployment.standby_policy)},
          {"unprotected", deployment.unprotected}};
}

}  // namespace

nlohmann::ordered_json status_json(const ClusterStatus& status) {
  Json nodes = Json::array(), deployments = Json::array(), events = Json::array();
  for (const NodeStatus& node : status.nodes) nodes.push_back(node_json(node));
  for (const DeploymentStatus& deployment : status.deployments)
    deployments.push_back(deployment_json(deployment));
  for (const ClusterEvent& event : status.events)
    events.push_back({{"unix_ms", event.unix_ms}, {"text", event.text}});
  return {{"cluster_id", status.cluster_id},   {"version", status.version},
          {"answered_by", status.answered_by}, {"faults_survived", status.faults_survived},
          {"nodes", std::move(nodes)},         {"deployments", std::move(deployments)},
          {"events", std::move(events)}};
}

}  // namespace troupe::cli

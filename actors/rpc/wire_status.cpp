// The status half of wire.h: long, because a status is.
#include "actors/rpc/wire.h"

namespace troupe::rpc {
namespace {

std::string text(capnp::Text::Reader from) {
  return {from.begin(), from.size()};
}
kj::StringPtr view(const std::string& from) {
  return {from.c_str(), from.size()};
}

void write(const NodeStatus& node, schema::NodeStatus::Builder to) {
  to.setId(view(node.id));
  to.setRole(view(node.role));
  to.setState(static_cast<schema::NodeState>(node.state));
  to.setAddress(view(node.address));
  to.setIncarnation(node.incarnation);
  to.setProcess(node.process);
  to.setMemoryTotalBytes(node.memory_total_bytes);
  to.setMemoryFreeBytes(node.memory_free_bytes);
  to.setCores(node.cores);
  to.setUptimeMs(node.uptime_ms);
  to.setRestarts(node.restarts);
  to.setDraining(node.draining);
}

NodeStatus read(schema::NodeStatus::Reader from) {
  NodeStatus node;
  node.id = text(from.getId());
  node.role = text(from.getRole());
  // A state that this program does not know is shown as the middle one.
  node.state = from.getState() <= schema::NodeState::DEAD ? static_cast<NodeState>(from.getState())
                                                          : NodeState::kSuspect;
  node.address = text(from.getAddress());
  node.incarnation = from.getIncarnation();
  node.process = from.getProcess();
  node.memory_total_bytes = from.getMemoryTotalBytes();
  node.memory_free_bytes = from.getMemoryFreeBytes();
  node.cores = from.getCores();
  node.uptime_ms = from.getUptimeMs();
  node.restarts = from.getRestarts();
  node.draining = from.getDraining();
  return node;
}

void write(const StageStatus& stage, schema::StageStatus::Builder to) {
  to.setIndex(stage.index);
  to.setNode(view(stage.node));
  to.setLayerFirst(stage.layer_first);
  to.setLayerLast(stage.layer_last);
  to.setProcess(stage.process);
  to.setIncarnation(stage.incarnation);
  to.setSteps(stage.steps);
  to.setTokens(stage.tokens);
  to.setTokensPerSecond(stage.tokens_per_second);
  to.setBusyFraction(stage.busy_fraction);
  to.setHopP50Ms(stage.hop_p50_ms);
  to.setHopP99Ms(stage.hop_p99_ms);
  to.setStepP50Ms(stage.step_p50_ms);
  to.setStepP99Ms(stage.step_p99_ms);
  to.setWeightBytes(stage.weight_bytes);
  to.setKvBytes(stage.kv_bytes);
  to.setResidentBytes(stage.resident_bytes);
  to.setFencedFrames(stage.fenced_frames);
  to.setMovingTo(view(stage.moving_to));
  to.setMoveTrouble(view(stage.move_trouble));
  to.setStandby(view(stage.standby));
  to.setStandbyBehind(stage.standby_behind);
  to.setStandbyState(static_cast<schema::StandbyState>(stage.standby_state));
  to.setStandbyTrouble(view(stage.standby_trouble));
}

StageStatus read(schema::StageStatus::Reader from) {
  StageStatus stage;
  stage.index = from.getIndex();
  stage.node = text(from.getNode());
  stage.layer_first = from.getLayerFirst();
  stage.layer_last = from.getLayerLast();
  stage.process = from.getProcess();
  stage.incarnation = from.getIncarnation();
  stage.steps = from.getSteps();
  stage.tokens = from.getTokens();
  stage.tokens_per_second = from.getTokensPerSecond();
  stage.busy_fraction = from.getBusyFraction();
  stage.hop_p50_ms = from.getHopP50Ms();
  stage.hop_p99_ms = from.getHopP99Ms();
  stage.step_p50_ms = from.getStepP50Ms();
  stage.step_p99_ms = from.getStepP99Ms();
  stage.weight_bytes = from.getWeightBytes();
  stage.kv_bytes = from.getKvBytes();
  stage.resident_bytes = from.getResidentBytes();
  stage.fenced_frames = from.getFencedFrames();
  stage.moving_to = text(from.getMovingTo());
  stage.move_trouble = text(from.getMoveTrouble());
  stage.standby = text(from.getStandby());
  stage.standby_behind = from.getStandbyBehind();
  // One that this program does not know protects nobody as far as it can tell.
  stage.standby_state = from.getStandbyState() <= schema::StandbyState::READY
                            ? static_cast<StandbyState>(from.getStandbyState())
                            : StandbyState::kLoading;
  stage.standby_trouble = text(from.getStandbyTrouble());
  return stage;
}

void write(const BatcherStatus& batcher, schema::BatcherStatus::Builder to) {
  to.setNode(view(batcher.node));
  to.setRequestsQueued(batcher.requests_queued);
  to.setRequestsRunning(batcher.requests_running);
  to.setMicroBatchesInFlight(batcher.micro_batches_in_flight);
  to.setKvBlocksUsed(batcher.kv_blocks_used);
  to.setKvBlocksTotal(batcher.kv_blocks_total);
  to.setTokensGenerated(batcher.tokens_generated);
  to.setTokensReplayed(batcher.tokens_replayed);
  to.setTokensPerSecond(batcher.tokens_per_second);
}

BatcherStatus read(schema::BatcherStatus::Reader from) {
  BatcherStatus batcher;
  batcher.node = text(from.getNode());
  batcher.requests_queued = from.getRequestsQueued();
  batcher.requests_running = from.getRequestsRunning();
  batcher.micro_batches_in_flight = from.getMicroBatchesInFlight();
  batcher.kv_blocks_used = from.getKvBlocksUsed();
  batcher.kv_blocks_total = from.getKvBlocksTotal();
  batcher.tokens_generated = from.getTokensGenerated();
  batcher.tokens_replayed = from.getTokensReplayed();
  batcher.tokens_per_second = from.getTokensPerSecond();
  return batcher;
}

template <class List, class Value, class To>
void write_all(const std::vector<Value>& values, List list, void (*write_one)(const Value&, To)) {
  for (unsigned i = 0; i < list.size(); ++i) write_one(values[i], list[i]);
}

unsigned list_size(size_t size) {
  return static_cast<unsigned>(size);
}

void write(const DeploymentStatus& deployment, schema::DeploymentStatus::Builder to) {
  to.setName(view(deployment.name));
  to.setModel(view(deployment.model));
  to.setModelId(view(deployment.model_id));
  to.setState(static_cast<schema::DeploymentState>(deployment.state));
  to.setDetail(view(deployment.detail));
  to.setView(deployment.view);
  write_all(deployment.stages, to.initStages(list_size(deployment.stages.size())), &write);
  write(deployment.batcher, to.initBatcher());
  to.setStandbyPolicy(static_cast<schema::StandbyPolicy>(deployment.standby_policy));
  to.setUnprotected(deployment.unprotected);
}

DeploymentStatus read(schema::DeploymentStatus::Reader from) {
  DeploymentStatus deployment;
  deployment.name = text(from.getName());
  deployment.model = text(from.getModel());
  deployment.model_id = text(from.getModelId());
  deployment.state = from.getState() <= schema::DeploymentState::STOPPED
                         ? static_cast<DeploymentState>(from.getState())
                         : DeploymentState::kLoading;
  deployment.detail = text(from.getDetail());
  if (from.getStandbyPolicy() <= schema::StandbyPolicy::INPUT)
    deployment.standby_policy = static_cast<StandbyPolicy>(from.getStandbyPolicy());
  deployment.unprotected = from.getUnprotected();
  deployment.view = from.getView();
  for (const auto stage : from.getStages()) deployment.stages.push_back(read(stage));
  deployment.batcher = read(from.getBatcher());
  return deployment;
}

void write(const ClusterEvent& event, schema::ClusterEvent::Builder to) {
  to.setUnixMs(event.unix_ms);
  to.setText(view(event.text));
}

}  // namespace

void write(const ClusterStatus& status, schema::ClusterStatus::Builder to) {
  to.setClusterId(view(status.cluster_id));
  to.setVersion(view(status.version));
  to.setAnsweredBy(view(status.answered_by));
  to.setFaultsSurvived(status.faults_survived);
  write_all(status.nodes, to.initNodes(list_size(status.nodes.size())), &write);
  write_all(status.deployments, to.initDeployments(list_size(status.deployments.size())), &write);
  write_all(status.events, to.initEvents(list_size(status.events.size())), &write);
}

ClusterStatus read(schema::ClusterStatus::Reader from) {
  ClusterStatus status;
  status.cluster_id = text(from.getClusterId());
  status.version = text(from.getVersion());
  status.answered_by = text(from.getAnsweredBy());
  status.faults_survived = from.getFaultsSurvived();
  for (const auto node : from.getNodes()) status.nodes.push_back(read(node));
  for (const auto deployment : from.getDeployments())
    status.deployments.push_back(read(deployment));
  for (const auto event : from.getEvents())
    status.events.push_back({event.getUnixMs(), text(event.getText())});
  return status;
}

}  // namespace troupe::rpc

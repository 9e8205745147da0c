// What the scheduler tells about the cluster: the second half of its shell, kept apart because it
// decides nothing.
#include <algorithm>

#include "actors/model_registry.h"
#include "actors/scheduler.h"
#include "base/version.h"

namespace troupe {
namespace {

// A standby that lacks more rows than this is "filling".
constexpr uint64_t kStandbyFillingRows = 512;

}  // namespace
namespace {

double milliseconds(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-6;
}

DeploymentState deployment_state(const SchedulerState& state) {
  if (state.failure) return DeploymentState::kFailed;
  if (!state.replica) return DeploymentState::kLoading;
  switch (state.replica->state()) {
    case ReplicaState::kServing:
      return DeploymentState::kServing;
    case ReplicaState::kWaiting:
    case ReplicaState::kLoading:
    case ReplicaState::kProposing:
    case ReplicaState::kInstalling:
      break;
  }
  return state.replica->faults() > 0 ? DeploymentState::kRecovering : DeploymentState::kLoading;
}

NodeStatus status_of_node(const SchedulerState& state, const NodeId& id,
                          const SchedulerState::Node& node) {
  const Instant now = state.self->clock().now();
  NodeStatus status;
  status.id = id;
  status.role = id == state.options.self ? "head" : "worker";
  status.state = node.state;
  status.address = node.address;
  status.incarnation = node.incarnation.value;
  if (node.inventory) {
    status.process = node.inventory->process;
    status.memory_total_bytes = node.inventory->memory_bytes;
    status.memory_free_bytes = node.inventory->memory_free_bytes;
    status.cores = node.inventory->cores;
  }
  if (node.state != NodeState::kDead)
    status.uptime_ms = static_cast<uint64_t>(to_milliseconds(now - node.since));
  status.restarts = node.restarts;
  status.draining = node.leaving || state.drained.contains(id);
  return status;
}

}  // namespace

void SchedulerState::record(const StageFigures& now_figures) {
  if (now_figures.deployment != options.deployment.name) return;
  // A standby's own figures are not its stage's.
  if (replica)
    for (const Standby& standby : replica->ready_standbys())
      if (standby.seat.incarnation == now_figures.incarnation) return;
  const Instant now = self->clock().now();
  StageRecord& kept = figures[now_figures.stage];
  if (kept.last.incarnation == now_figures.incarnation) {
    const double seconds = to_seconds(now - kept.at);
    if (seconds > 0.1) {
      kept.rows_per_second = static_cast<double>(now_figures.rows - kept.last.rows) / seconds;
      kept.busy_fraction = std::min(
          1.0, static_cast<double>(now_figures.busy_ns - kept.last.busy_ns) * 1e-9 / seconds);
    }
  } else {
    kept.rows_per_second = kept.busy_fraction = 0;
  }
  kept.last = now_figures;
  kept.at = now;
}

// What the stage itself says of its standby counts only if it means this one.
void SchedulerState::fill_standby(StageStatus& status) const {
  if (options.deployment.standby == StandbyPolicy::kNone) return;
  status.standby_trouble = replica->standby_trouble(status.index);
  if (!replica->follows(status.index)) {
    if (replica->standby_comes(status.index)) status.standby_state = StandbyState::kLoading;
    return;
  }
  status.standby_state = StandbyState::kFilling;
  const auto found = figures.find(status.index);
  for (const Standby& standby : replica->ready_standbys()) {
    if (standby.stage != status.index) continue;
    status.standby = standby.seat.node;
    if (found == figures.end()) continue;
    const StageFigures& last = found->second.last;
    if (last.incarnation.value != status.incarnation || last.standby != standby.seat.incarnation)
      continue;
    status.standby_behind = last.standby_behind;
    if (last.standby_behind <= kStandbyFillingRows) status.standby_state = StandbyState::kReady;
  }
}

StageStatus SchedulerState::status_of_stage(uint32_t stage, const Seat& seat) const {
  StageStatus status;
  status.index = stage;
  status.node = seat.node;
  status.layer_first = seat.layers.first;
  status.layer_last = seat.layers.last;
  status.process = seat.process;
  status.incarnation = seat.incarnation.value;
  status.moving_to = replica->moving_to(stage);
  status.move_trouble = replica->move_trouble(stage);
  fill_standby(status);
  const auto found = figures.find(stage);
  if (found == figures.end() || found->second.last.incarnation != seat.incarnation) return status;
  const StageFigures& last = found->second.last;
  status.steps = last.micro_batches;
  status.tokens = last.rows;
  status.tokens_per_second = found->second.rows_per_second;
  status.busy_fraction = found->second.busy_fraction;
  status.hop_p50_ms = milliseconds(last.hop_p50_ns);
  status.hop_p99_ms = milliseconds(last.hop_p99_ns);
  status.step_p50_ms = milliseconds(last.step_p50_ns);
  status.step_p99_ms = milliseconds(last.step_p99_ns);
  status.weight_bytes = last.weight_bytes;
  status.kv_bytes = last.kv_bytes;
  status.resident_bytes = last.resident_bytes;
  status.fenced_frames = last.fenced_frames;
  return status;
}

DeploymentStatus SchedulerState::status_of_deployment() const {
  DeploymentStatus status;
  status.name = options.deployment.name;
  const size_t slash = options.deployment.model_path.rfind('/');
  status.model = options.deployment.model_path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (model) status.model_id = model->content_id;
  status.state = deployment_state(*this);
  if (failure)
    status.detail = failure->message;
  else if (status.state != DeploymentState::kServing)
    status.detail = told_gateway.empty() || told_gateway == "serving"
                        ? (replica ? to_string(replica->state()) : "opening the model")
                        : told_gateway;
  if (replica) {
    status.view = replica->view().number.value;
    for (uint32_t stage = 0; stage < replica->view().seats.size(); ++stage)
      status.stages.push_back(status_of_stage(stage, replica->view().seats[stage]));
  }
  status.batcher.node = options.self;
  status.standby_policy = options.deployment.standby;
  if (status.standby_policy != StandbyPolicy::kNone)
    status.unprotected = static_cast<uint32_t>(
        std::count_if(status.stages.begin(), status.stages.end(),
                      [](const StageStatus& stage) { return stage.standby.empty(); }));
  return status;
}

ClusterStatus SchedulerState::status_of_cluster() const {
  ClusterStatus status;
  status.cluster_id = options.cluster_id;
  status.version = kVersion;
  status.answered_by = options.self;
  status.faults_survived = replica ? replica->faults() : 0;
  for (const auto& [id, node] : nodes) status.nodes.push_back(status_of_node(*this, id, node));
  for (const auto& [id, node] : lost_nodes)
    if (!nodes.contains(id)) status.nodes.push_back(status_of_node(*this, id, node));
  status.deployments.push_back(status_of_deployment());
  status.events.assign(events.begin(), events.end());
  return status;
}

void SchedulerState::status(const std::function<void(ClusterStatus)>& done) {
  self->request(options.batcher, caf::timespan{Duration{2s}}, GetBatchingFigures{})
      .then(
          [this, done](const BatchingFigures& batching) {
            ClusterStatus status = status_of_cluster();
            BatcherStatus& batcher = status.deployments.front().batcher;
            batcher.requests_queued = batching.queued;
            batcher.requests_running = batching.running;
            batcher.micro_batches_in_flight = batching.in_flight;
            batcher.kv_blocks_used = batching.kv_blocks_used;
            batcher.kv_blocks_total = batching.kv_blocks;
            batcher.tokens_generated = batching.tokens_generated;
            batcher.tokens_replayed = batching.rows_replayed;
            const Instant now = self->clock().now();
            const double seconds = to_seconds(now - last_status);
            if (last_status != Instant{} && seconds > 0.05 &&
                batching.tokens_generated >= tokens_at_last_status)
              batcher.tokens_per_second =
                  static_cast<double>(batching.tokens_generated - tokens_at_last_status) / seconds;
            last_status = now;
            tokens_at_last_status = batching.tokens_generated;
            done(std::move(status));
          },
          [this, done](const caf::error&) { done(status_of_cluster()); });
}

}  // namespace troupe

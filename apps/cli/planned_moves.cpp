#include "apps/cli/planned_moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace troupe::cli {
namespace {

using Kind = MoveVerdict::Kind;

constexpr Duration kLookInterval = 100ms;

std::string not_serving(const DeploymentStatus& deployment) {
  std::string text = fmt::format("{} is {}", deployment.name, to_string(deployment.state));
  if (!deployment.detail.empty()) text += ": " + deployment.detail;
  return text;
}

// Nothing of it runs, so nothing of it moves.
bool is_over(const DeploymentStatus& deployment) {
  return deployment.state == DeploymentState::kFailed ||
         deployment.state == DeploymentState::kStopped;
}

std::string whereabouts(const StageStatus& stage) {
  if (!stage.moving_to.empty()) return "loading on " + stage.moving_to;
  if (stage.move_trouble.empty()) return "on " + stage.node;
  return fmt::format("still on {}: {}", stage.node, stage.move_trouble);
}

std::string sentence(const StageStatus& stage) {
  return fmt::format("stage {}: {}", stage.index, whereabouts(stage));
}

void append(std::string& text, const std::string& more, const char* between = "; ") {
  text.append(text.empty() ? "" : between).append(more);
}

// What is on the node or on its way there. Stages that have the same to say say it once.
std::string left_on(const NodeId& node, const DeploymentStatus& deployment) {
  struct Group {
    std::string where, numbers;
    uint32_t count = 0;
  };
  std::vector<Group> groups;
  for (const StageStatus& stage : deployment.stages) {
    if (stage.node != node && stage.moving_to != node) continue;
    const std::string where = whereabouts(stage);
    if (groups.empty() || groups.back().where != where) groups.push_back({where, "", 0});
    append(groups.back().numbers, std::to_string(stage.index), ", ");
    ++groups.back().count;
  }
  std::string text;
  for (const Group& group : groups)
    append(text,
           fmt::format("stage{} {}: {}", group.count == 1 ? "" : "s", group.numbers, group.where));
  return text;
}

}  // namespace

const DeploymentStatus* deployment_of(const ClusterStatus& status, const std::string& name) {
  const auto found =
      std::find_if(status.deployments.begin(), status.deployments.end(),
                   [&](const DeploymentStatus& one) { return name.empty() || one.name == name; });
  return found == status.deployments.end() ? nullptr : &*found;
}

MoveVerdict judge_drain(const ClusterStatus& status, const NodeId& node) {
  const auto found = std::find_if(status.nodes.begin(), status.nodes.end(),
                                  [&](const NodeStatus& one) { return one.id == node; });
  if (found == status.nodes.end() || !found->draining)
    return {Kind::kFailed,
            fmt::format("{} is not draining any more: it was taken back, or the head started anew",
                        node)};
  std::string left;
  for (const DeploymentStatus& deployment : status.deployments) {
    if (is_over(deployment)) continue;
    if (deployment.state != DeploymentState::kServing) append(left, not_serving(deployment));
    const std::string stages = left_on(node, deployment);
    if (!stages.empty()) append(left, stages);
  }
  return {left.empty() ? Kind::kDone : Kind::kGoing, left};
}

MoveVerdict judge_move(const ClusterStatus& status, const MoveCall& call) {
  const DeploymentStatus* const deployment = deployment_of(status, call.model);
  if (deployment == nullptr || is_over(*deployment))
    return {Kind::kFailed,
            deployment == nullptr ? "there is no such model any more" : not_serving(*deployment)};
  const bool serves = deployment->state == DeploymentState::kServing;
  const auto stage = std::find_if(deployment->stages.begin(), deployment->stages.end(),
                                  [&](const StageStatus& one) { return one.index == call.stage; });
  if (stage == deployment->stages.end())
    return {Kind::kFailed, fmt::format("the head started anew; {}", not_serving(*deployment))};
  if (stage->moving_to == call.node)
    return {Kind::kGoing, serves ? sentence(*stage) : not_serving(*deployment)};
  if (stage->node == call.node && stage->moving_to.empty())
    return {serves ? Kind::kDone : Kind::kGoing, serves ? "" : not_serving(*deployment)};
  if (!stage->move_trouble.empty()) return {Kind::kFailed, stage->move_trouble};
  return {Kind::kFailed, fmt::format("it is {}; the events of troupe status say what came between",
                                     whereabouts(*stage))};
}

size_t stages_followed(const DeploymentStatus& deployment) {
  return static_cast<size_t>(
      std::count_if(deployment.stages.begin(), deployment.stages.end(),
                    [](const StageStatus& stage) { return !stage.standby.empty(); }));
}

MoveVerdict judge_standby(const ClusterStatus& status, const StandbyCall& call) {
  const DeploymentStatus* const deployment = deployment_of(status, call.model);
  if (deployment == nullptr || is_over(*deployment))
    return {Kind::kFailed,
            deployment == nullptr ? "there is no such model any more" : not_serving(*deployment)};
  if (deployment->standby_policy != call.policy)
    return {Kind::kFailed, fmt::format("the policy is {} now: somebody else set it, or the head "
                                       "started anew and goes by its configuration",
                                       to_string(deployment->standby_policy))};
  if (deployment->state != DeploymentState::kServing)
    return {Kind::kGoing, not_serving(*deployment)};
  const bool wanted = call.policy != StandbyPolicy::kNone;
  const bool settled = std::all_of(deployment->stages.begin(), deployment->stages.end(),
                                   [&](const StageStatus& stage) {
                                     const bool followed = !stage.standby.empty();
                                     return followed == wanted || !stage.standby_trouble.empty();
                                   });
  return {settled ? Kind::kDone : Kind::kGoing,
          fmt::format("{} of {} stages have a standby", stages_followed(*deployment),
                      deployment->stages.size())};
}

Result<ClusterStatus> wait_for(Client& client, Duration deadline, ProgressLine& progress,
                               const std::function<MoveVerdict(const ClusterStatus&)>& judge) {
  const Instant until = steady_now() + deadline;
  std::string last;
  while (true) {
    const Result<ClusterStatus> status = client.status();
    if (status.ok()) {
      const MoveVerdict verdict = judge(status.value());
      if (verdict.kind == Kind::kDone) return status;
      if (verdict.kind == Kind::kFailed) return Error{ErrorCode::kCancelled, verdict.text};
      last = verdict.text;
    } else if (status.error().code == ErrorCode::kUnavailable ||
               status.error().code == ErrorCode::kDeadlineExceeded) {
      last = "the head does not answer: " + status.error().message;
    } else {
      return status.error();
    }
    if (steady_now() >= until) return Error{ErrorCode::kDeadlineExceeded, last};
    progress.step(printable(last));
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace troupe::cli

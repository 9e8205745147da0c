#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/status_report.h"
#include "apps/cli/terminal.h"
#include "base/ids.h"

namespace troupe::cli {
namespace {

using Cell = Table::Cell;

constexpr size_t kEventsShown = 12;

Style style_of(const NodeStatus& node) {
  if (node.state == NodeState::kDead) return Style::kBad;
  return node.state == NodeState::kSuspect || node.draining ? Style::kWarn : Style::kGood;
}

Style style_of(DeploymentState state) {
  switch (state) {
    case DeploymentState::kServing:
      return Style::kGood;
    case DeploymentState::kLoading:
    case DeploymentState::kRecovering:
      return Style::kWarn;
    case DeploymentState::kFailed:
      return Style::kBad;
    case DeploymentState::kStopped:
      return Style::kFaint;
  }
  return Style::kPlain;
}

std::string milliseconds(double p50, double p99) {
  return p50 == 0 && p99 == 0 ? "-" : fmt::format("{:.2f} / {:.2f} ms", p50, p99);
}

std::string process_text(uint64_t process) {
  return process == 0 ? "in daemon" : std::to_string(process);
}

std::string nodes_text(const ClusterStatus& status) {
  Table table({{"node"},
               {"role"},
               {"state"},
               {"pid", true},
               {"address"},
               {"cores", true},
               {"memory free", true},
               {"up", true},
               {"restarts", true}});
  for (const NodeStatus& node : status.nodes)
    table.add({{printable(node.id), false, Style::kStrong},
               {printable(node.role)},
               {state_text(node), false, style_of(node)},
               {std::to_string(node.process)},
               {printable(node.address)},
               {std::to_string(node.cores)},
               {fmt::format("{} of {}", human_bytes(node.memory_free_bytes),
                            human_bytes(node.memory_total_bytes))},
               {human_duration(std::chrono::milliseconds{node.uptime_ms})},
               {std::to_string(node.restarts)}});
  return table.text("  ");
}

// Why a node still holds a stage that a planned move was to take away; empty if it does not.
std::string trouble_on(const NodeId& node, const ClusterStatus& status) {
  for (const DeploymentStatus& deployment : status.deployments)
    for (const StageStatus& stage : deployment.stages)
      if (stage.node == node && !stage.move_trouble.empty()) return stage.move_trouble;
  return {};
}

std::string drains_text(const ClusterStatus& status) {
  std::string text;
  for (const NodeStatus& node : status.nodes)
    if (const std::string trouble = trouble_on(node.id, status); node.draining && !trouble.empty())
      text += fmt::format("  {} is not empty: {}\n", printable(node.id), printable(trouble));
  return text;
}

// 1234567 -> "1,234,567".
std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t left = text.size(); left > 3;) text.insert(left -= 3, ",");
  return text;
}

// Who follows the stage: "node-3", "node-3 (1,204 behind)".
std::string standby_text(const StageStatus& stage) {
  if (stage.standby.empty()) return stage.standby_state == StandbyState::kLoading ? "loading" : "-";
  return stage.standby_behind == 0 ? printable(stage.standby)
                                   : fmt::format("{} ({} behind)", printable(stage.standby),
                                                 grouped(stage.standby_behind));
}

std::string stages_text(const DeploymentStatus& deployment) {
  const bool protects = deployment.standby_policy != StandbyPolicy::kNone;
  std::vector<Cell> header{{"stage", true},
                           {"node"},
                           {"layers"},
                           {"pid", true},
                           {"busy", true},
                           {"tokens/s", true},
                           {"step p50 / p99", true},
                           {"hop p50 / p99", true},
                           {"weights", true},
                           {"KV cache", true}};
  if (protects) header.insert(header.begin() + 2, {"standby"});
  Table table(std::move(header));
  for (const StageStatus& stage : deployment.stages) {
    std::vector<Cell> row{
        {std::to_string(stage.index)},
        {printable(stage.moving_to.empty() ? stage.node : stage.node + " to " + stage.moving_to),
         false, Style::kStrong},
        {fmt::format("{}-{}", stage.layer_first,
                     std::max(stage.layer_last, stage.layer_first + 1) - 1)},
        {process_text(stage.process)},
        {fmt::format("{:.0f} %", stage.busy_fraction * 100)},
        {fmt::format("{:.1f}", stage.tokens_per_second)},
        {milliseconds(stage.step_p50_ms, stage.step_p99_ms)},
        {milliseconds(stage.hop_p50_ms, stage.hop_p99_ms)},
        {human_bytes(stage.weight_bytes)},
        {human_bytes(stage.kv_bytes)}};
    if (protects)
      row.insert(row.begin() + 2, {standby_text(stage), false,
                                   stage.standby.empty() ? Style::kWarn : Style::kPlain});
    table.add(std::move(row));
  }
  return table.empty() ? "  no stages yet\n" : table.text("  ");
}

std::string deployment_text(const DeploymentStatus& deployment) {
  std::string text =
      fmt::format("{}  {}  view {}", styled(printable(deployment.name), Style::kStrong),
                  styled(to_string(deployment.state), style_of(deployment.state)), deployment.view);
  if (!deployment.detail.empty()) text += fmt::format("  {}", printable(deployment.detail));
  const BatcherStatus& batcher = deployment.batcher;
  text += fmt::format("\n{}", stages_text(deployment));
  text += unprotected_text(deployment, "  ");
  text += fmt::format(
      "  {} running, {} waiting; {:.1f} tokens/s; {} of {} KV blocks; {} tokens generated, {} "
      "computed again after failures\n",
      batcher.requests_running, batcher.requests_queued, batcher.tokens_per_second,
      batcher.kv_blocks_used, batcher.kv_blocks_total, batcher.tokens_generated,
      batcher.tokens_replayed);
  return text;
}

std::string events_text(const ClusterStatus& status) {
  std::string text;
  const size_t skipped =
      status.events.size() > kEventsShown ? status.events.size() - kEventsShown : 0;
  for (size_t i = skipped; i < status.events.size(); ++i) {
    const ClusterEvent& event = status.events[i];
    const std::time_t seconds = static_cast<std::time_t>(event.unix_ms / 1000);
    text += fmt::format("  {}  {}\n",
                        styled(fmt::format("{:%H:%M:%S}", fmt::localtime(seconds)), Style::kFaint),
                        printable(event.text));
  }
  return text;
}

}  // namespace

const char* state_text(const NodeStatus& node) {
  return node.draining && node.state == NodeState::kAlive ? "draining" : to_string(node.state);
}

// A stage without a standby costs a longer pause when it is lost; people want to know.
std::string unprotected_text(const DeploymentStatus& deployment, const std::string& indent) {
  if (deployment.standby_policy == StandbyPolicy::kNone) return {};
  struct Group {
    std::string trouble, stages;
    bool several = false;
  };
  std::vector<Group> groups;
  for (const StageStatus& stage : deployment.stages) {
    if (!stage.standby.empty()) continue;
    const auto same = [&](const Group& group) { return group.trouble == stage.standby_trouble; };
    const auto known = std::find_if(groups.begin(), groups.end(), same);
    if (known == groups.end()) {
      groups.push_back({stage.standby_trouble, std::to_string(stage.index)});
    } else {
      known->stages += fmt::format(", {}", stage.index);
      known->several = true;
    }
  }
  std::string text;
  for (const Group& group : groups) {
    // Without a reason one is on its way, or will be looked for.
    const std::string line =
        group.trouble.empty()
            ? fmt::format("unprotected for now (no standby): stage {}", group.stages)
            : fmt::format("{} {} {} unprotected: {}", group.several ? "stages" : "stage",
                          group.stages, group.several ? "are" : "is", printable(group.trouble));
    text += indent + styled(line, Style::kWarn) + "\n";
  }
  return text;
}

std::string status_text(const ClusterStatus& status) {
  std::string text = fmt::format("{}  troupe {}  faults survived: {}\n\n",
                                 styled("cluster " + printable(status.cluster_id), Style::kStrong),
                                 printable(status.version),
                                 styled(std::to_string(status.faults_survived),
                                        status.faults_survived > 0 ? Style::kGood : Style::kPlain));
  text += nodes_text(status) + drains_text(status);
  for (const DeploymentStatus& deployment : status.deployments)
    text += fmt::format("\n{}", deployment_text(deployment));
  if (!status.events.empty()) text += fmt::format("\nrecent events\n{}", events_text(status));
  return text;
}

}  // namespace troupe::cli

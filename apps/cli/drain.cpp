// troupe drain and undrain: empty a node for maintenance while the cluster goes on serving.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/planned_moves.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

struct DrainCommand {
  ClusterChoice cluster;
  std::string node;
  double deadline_seconds = 30;
  bool json = false;
};

// Stages of `before` that were on the node, and where they are now.
Json moved_stages(const ClusterStatus& before, const ClusterStatus& now, const NodeId& node) {
  Json moved = Json::array();
  for (const DeploymentStatus& deployment : before.deployments) {
    const DeploymentStatus* const after = deployment_of(now, deployment.name);
    for (const StageStatus& stage : deployment.stages)
      if (stage.node == node && after != nullptr && stage.index < after->stages.size())
        moved.push_back({{"deployment", deployment.name},
                         {"stage", stage.index},
                         {"node", after->stages[stage.index].node}});
  }
  return moved;
}

void print_outcome(const DrainCommand& options, const Result<void>& drained, const Json& moved,
                   double seconds) {
  if (options.json) {
    const Json document = {{"node", options.node},
                           {"drained", drained.ok()},
                           {"seconds", seconds},
                           {"moved", moved},
                           {"why", drained.ok() ? "" : drained.error().message}};
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (drained.ok()) {
    std::string text = fmt::format("{} is empty after {:.1f} s", options.node, seconds);
    for (const Json& stage : moved)
      text +=
          fmt::format("{} stage {} is on {}", &stage == &moved.front() ? ":" : ",",
                      stage["stage"].get<uint32_t>(), printable(stage["node"].get<std::string>()));
    fmt::print("{}\nit takes no stages until: troupe undrain {}\n", text, options.node);
  }
}

// The status of the cluster when no stage was left there.
Result<ClusterStatus> empty_node(Client& client, const DrainCommand& options) {
  TROUPE_TRY_VOID(client.drain({.node = options.node, .drained = true}));
  ProgressLine progress;
  progress.step("draining " + options.node);
  const Result<ClusterStatus> empty =
      wait_for(client, seconds_of(options.deadline_seconds), progress,
               [&](const ClusterStatus& status) { return judge_drain(status, options.node); });
  if (empty.ok() || empty.error().code != ErrorCode::kDeadlineExceeded) return empty;
  return Error{
      ErrorCode::kDeadlineExceeded,
      fmt::format("{0} is not empty after {1} s: {2}\nit stays draining and its stages go "
                  "as soon as they can; troupe undrain {0} takes it back",
                  options.node, options.deadline_seconds, printable(empty.error().message))};
}

int drain(const DrainCommand& options) {
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe drain");
  if (!client.ok()) return report(client.error());
  const Result<ClusterStatus> before = client.value()->status();
  if (!before.ok()) return report(before.error());
  const Instant begin = steady_now();
  const Result<ClusterStatus> empty = empty_node(*client.value(), options);
  const double seconds = to_seconds(steady_now() - begin);
  if (!empty.ok()) {
    print_outcome(options, empty.error(), Json::array(), seconds);
    return report(empty.error());
  }
  print_outcome(options, {}, moved_stages(before.value(), empty.value(), options.node), seconds);
  return kExitOk;
}

int undrain(const DrainCommand& options) {
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe undrain");
  if (!client.ok()) return report(client.error());
  const Result<void> taken_back = client.value()->drain({.node = options.node, .drained = false});
  if (!taken_back.ok()) return report(taken_back.error());
  fmt::print("{} takes stages again\n", options.node);
  return kExitOk;
}

}  // namespace

void add_drain(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DrainCommand>();
  CLI::App* command =
      app.add_subcommand("drain", "Move every stage off a node, and give it no new ones");
  command->add_option("node", options->node, "Which node, as troupe status names it")->required();
  add_cluster_options(*command, options->cluster);
  add_deadline_option(*command, options->deadline_seconds, "How long to wait until it is empty");
  command->add_flag("--json", options->json, "The outcome as JSON");
  command->footer(
      "Each stage is loaded on another node before the cluster changes over, so requests go on\n"
      "and their tokens are the same. The head may be drained, too: it stays the head.\n"
      "Exit code 0: the node holds no stage and may be stopped. 1: it still holds one when the\n"
      "deadline has passed (the message says which and why); it goes on draining then.\n"
      "The head keeps in memory which nodes are drained: if the head is restarted, drain again.\n"
      "\nExamples:\n  troupe drain node-2\n  troupe drain node-2 --deadline 2min --json\n"
      "  troupe undrain node-2");
  command->callback([options, &exit_code] { exit_code = drain(*options); });
}

void add_undrain(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DrainCommand>();
  CLI::App* command = app.add_subcommand("undrain", "Let a drained node take stages again");
  command->add_option("node", options->node, "Which node, as troupe status names it")->required();
  add_cluster_options(*command, options->cluster);
  command->footer(
      "What moved away stays where it is until it is moved back: troupe move STAGE NODE.\n"
      "\nExamples:\n  troupe undrain node-2");
  command->callback([options, &exit_code] { exit_code = undrain(*options); });
}

}  // namespace troupe::cli

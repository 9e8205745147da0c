// troupe standby: whether standbys follow the stages.
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

struct StandbyCommand {
  ClusterChoice cluster;
  std::string model, policy;
  double deadline_seconds = 30;
  bool json = false;
};

uint32_t protected_stages(const DeploymentStatus& deployment) {
  return static_cast<uint32_t>(
      std::count_if(deployment.stages.begin(), deployment.stages.end(),
                    [](const StageStatus& stage) { return !stage.standby.empty(); }));
}

MoveVerdict judge_standby(const ClusterStatus& status, const StandbyCommand& options) {
  const DeploymentStatus* const deployment = deployment_of(status, options.model);
  if (deployment == nullptr) return {MoveVerdict::Kind::kGoing, "the deployment is loading"};
  const size_t stages = deployment->stages.size();
  const uint32_t followed = protected_stages(*deployment);
  const bool all = options.policy == "none" ? followed == 0 : followed == stages;
  return {all && deployment->state == DeploymentState::kServing ? MoveVerdict::Kind::kDone
                                                                : MoveVerdict::Kind::kGoing,
          fmt::format("{} of {} stages have a standby", followed, stages)};
}

Result<ClusterStatus> set_standby(Client& client, const StandbyCommand& options) {
  TROUPE_TRY_VOID(client.set_standby(
      {options.model, options.policy == "kv" ? StandbyPolicy::kKv : StandbyPolicy::kNone}));
  ProgressLine progress;
  const auto reached =
      wait_for(client, seconds_of(options.deadline_seconds), progress,
               [&](const ClusterStatus& status) { return judge_standby(status, options); });
  if (reached.ok() || reached.error().code != ErrorCode::kDeadlineExceeded) return reached;
  return Error{
      reached.error().code,
      fmt::format("after {} s {}: a standby needs another node than its stage's, with room "
                  "for it; the policy stays, and standbys are placed when there is one",
                  options.deadline_seconds, printable(reached.error().message))};
}

int standby(const StandbyCommand& options) {
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe standby");
  if (!client.ok()) return report(client.error());
  const Result<ClusterStatus> reached = set_standby(*client.value(), options);
  uint32_t followed = 0;
  if (reached.ok())
    if (const auto* deployment = deployment_of(reached.value(), options.model))
      followed = protected_stages(*deployment);
  if (options.json) {
    const nlohmann::ordered_json document = {{"policy", options.policy},
                                             {"reached", reached.ok()},
                                             {"stages_with_standby", followed},
                                             {"why", reached.ok() ? "" : reached.error().message}};
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (reached.ok()) {
    if (options.policy == "none")
      fmt::print("no stage has a standby any more\n");
    else
      fmt::print("all {} stages have a standby\n", followed);
  }
  return reached.ok() ? kExitOk : report(reached.error());
}

}  // namespace

void add_standby(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<StandbyCommand>();
  CLI::App* command =
      app.add_subcommand("standby", "Keep a standby of each stage, or none, from now on");
  command->add_option("policy", options->policy, "none or kv")
      ->required()
      ->check(CLI::IsMember({"none", "kv"}));
  add_cluster_options(*command, options->cluster);
  command->add_option("--model", options->model, "Which deployment, if there are several");
  add_deadline_option(*command, options->deadline_seconds, "How long to wait until all have one");
  command->add_flag("--json", options->json, "The outcome as JSON");
  command->footer(
      "kv: another node loads each stage, too, and is sent the rows of its KV cache as they come.\n"
      "When the stage is lost, its standby takes its seat and lacks a few rows at most. It takes\n"
      "the memory of the stage once more, and some per cent of its time.\n"
      "none: what is lost is loaded and computed again.\n"
      "Requests go on meanwhile. The head goes by its configuration when it starts anew.\n"
      "\nExamples:\n  troupe standby kv\n  troupe standby none --json");
  command->callback([options, &exit_code] { exit_code = standby(*options); });
}

}  // namespace troupe::cli

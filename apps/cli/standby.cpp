// troupe standby: whether standbys follow the stages.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/planned_moves.h"
#include "apps/cli/status_report.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

struct StandbyCommand {
  ClusterChoice cluster;
  StandbyCall call;
  std::string policy;
  double deadline_seconds = 30;
  bool no_wait = false, json = false;
};

// How far the cluster is when this command is done with it.
struct StandbyOutcome {
  DeploymentStatus deployment;
  bool reached = false;
};

Result<StandbyOutcome> outcome_of(const ClusterStatus& status, const StandbyCall& call) {
  const DeploymentStatus* const deployment = deployment_of(status, call.model);
  if (deployment == nullptr) return Error{ErrorCode::kNotFound, "there is no such model any more"};
  return StandbyOutcome{*deployment, judge_standby(status, call).kind == MoveVerdict::Kind::kDone};
}

Result<StandbyOutcome> set_standby(Client& client, const StandbyCommand& options) {
  TROUPE_TRY_VOID(client.set_standby(options.call));
  if (options.no_wait) {
    TROUPE_TRY(const ClusterStatus status, client.status());
    return outcome_of(status, options.call);
  }
  ProgressLine progress;
  const Result<ClusterStatus> reached =
      wait_for(client, seconds_of(options.deadline_seconds), progress,
               [&](const ClusterStatus& status) { return judge_standby(status, options.call); });
  if (reached.ok()) return outcome_of(reached.value(), options.call);
  const Error& why = reached.error();
  if (why.code != ErrorCode::kDeadlineExceeded) return why;
  return Error{why.code,
               fmt::format("after {} s: {}\nthe policy stays, and it goes on; troupe status shows "
                           "it",
                           options.deadline_seconds, printable(why.message))};
}

void print_json(const StandbyCommand& options, const Result<StandbyOutcome>& result) {
  const StandbyOutcome outcome = result.ok() ? result.value() : StandbyOutcome{};
  Json unprotected = Json::array();
  if (options.call.policy != StandbyPolicy::kNone)
    for (const StageStatus& stage : outcome.deployment.stages)
      if (stage.standby.empty())
        unprotected.push_back({{"stage", stage.index}, {"why", stage.standby_trouble}});
  const Json document = {{"policy", options.policy},
                         {"reached", outcome.reached},
                         {"stages", outcome.deployment.stages.size()},
                         {"stages_with_standby", stages_followed(outcome.deployment)},
                         {"unprotected", std::move(unprotected)},
                         {"why", result.ok() ? "" : result.error().message}};
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_text(const StandbyOutcome& outcome) {
  const DeploymentStatus& deployment = outcome.deployment;
  const size_t stages = deployment.stages.size(), followed = stages_followed(deployment);
  if (deployment.standby_policy == StandbyPolicy::kNone) {
    fmt::print("{}\n",
               followed == 0 ? "no stage has a standby any more" : "standbys are being stopped");
    return;
  }
  if (followed == stages && stages > 0)
    fmt::print("all {} stages have a standby\n", stages);
  else
    fmt::print("{} of {} stages have a standby{}\n", followed, stages,
               outcome.reached ? "" : "; troupe status shows how it goes on");
  fmt::print("{}", unprotected_text(deployment, ""));
}

int standby(StandbyCommand& options) {
  options.call.policy = standby_policy(options.policy).value_or(StandbyPolicy::kNone);
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe standby");
  if (!client.ok()) return report(client.error());
  const Result<StandbyOutcome> outcome = set_standby(*client.value(), options);
  if (options.json)
    print_json(options, outcome);
  else if (outcome.ok())
    print_text(outcome.value());
  return outcome.ok() ? kExitOk : report(outcome.error());
}

}  // namespace

void add_standby(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<StandbyCommand>();
  CLI::App* command =
      app.add_subcommand("standby", "Keep a standby of each stage, or none, from now on");
  command->add_option("policy", options->policy, "none, kv or input")
      ->required()
      ->check(CLI::IsMember({"none", "kv", "input"}));
  add_cluster_options(*command, options->cluster);
  command->add_option("--model", options->call.model, "Which deployment, if there are several");
  add_deadline_option(*command, options->deadline_seconds,
                      "How long to wait until every stage that can has one");
  command->add_flag("--no-wait", options->no_wait, "Do not wait for that");
  command->add_flag("--json", options->json, "The outcome as JSON");
  command->footer(
      "kv: another node loads each stage, too, and is sent the rows of its KV cache as they come.\n"
      "When the stage is lost, its standby takes its seat and lacks a few rows at most. It takes\n"
      "the memory of the stage once more, and some per cent of its time.\n"
      "input: the other node is sent the stage's input, executes it, too, and compares what comes\n"
      "out. No token is shown before all stages it went through were checked so; where two\n"
      "differ (a flipped bit in memory, a wrong result) the request is computed again, and who "
      "was\n"
      "wrong is replaced. Costs every computation twice, and a token waits for its checks.\n"
      "none: what is lost is loaded and computed again.\n"
      "Requests go on meanwhile. The head goes by its configuration when it starts anew.\n"
      "Exit code 0: every stage that can have a standby has one; a stage that no node has room\n"
      "for stays unprotected, and the answer names it. 1: not so when the deadline has passed\n"
      "(it goes on then). 3: no cluster, or the model is not open yet.\n"
      "\nExamples:\n  troupe standby kv\n  troupe standby input\n  troupe standby none --json\n"
      "  troupe standby kv --no-wait");
  command->callback([options, &exit_code] { exit_code = standby(*options); });
}

}  // namespace troupe::cli

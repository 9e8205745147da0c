// troupe move: one stage to another node while the cluster goes on serving.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/planned_moves.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct MoveCommand {
  ClusterChoice cluster;
  MoveCall call;
  double deadline_seconds = 30;
  bool json = false;
};

struct MoveOutcome {
  std::string from;  // empty: not known
  uint64_t view = 0;
  double seconds = 0;
};

std::string node_of_stage(const ClusterStatus& status, const MoveCall& call) {
  const DeploymentStatus* const deployment = deployment_of(status, call.model);
  if (deployment == nullptr || call.stage >= deployment->stages.size()) return {};
  return deployment->stages[call.stage].node;
}

Result<MoveOutcome> move_stage(Client& client, const MoveCommand& options) {
  const MoveCall& call = options.call;
  TROUPE_TRY(const ClusterStatus before, client.status());
  const Instant begin = steady_now();
  TROUPE_TRY_VOID(client.move(call));
  ProgressLine progress;
  progress.step(fmt::format("moving stage {} to {}", call.stage, call.node));
  const Result<ClusterStatus> there =
      wait_for(client, seconds_of(options.deadline_seconds), progress,
               [&](const ClusterStatus& status) { return judge_move(status, call); });
  if (there.ok())
    return MoveOutcome{node_of_stage(before, call), deployment_of(there.value(), call.model)->view,
                       to_seconds(steady_now() - begin)};
  const Error& why = there.error();
  if (why.code == ErrorCode::kDeadlineExceeded)
    return Error{why.code, fmt::format("stage {} is not on {} after {} s: {}\nthe move goes on; "
                                       "troupe status shows it",
                                       call.stage, call.node, options.deadline_seconds,
                                       printable(why.message))};
  if (why.code == ErrorCode::kCancelled)
    return Error{why.code, fmt::format("stage {} did not move to {}: {}", call.stage, call.node,
                                       printable(why.message))};
  return why;
}

int move(const MoveCommand& options) {
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe move");
  if (!client.ok()) return report(client.error());
  const Result<MoveOutcome> moved = move_stage(*client.value(), options);
  const MoveOutcome outcome = moved.ok() ? moved.value() : MoveOutcome{};
  if (options.json) {
    const nlohmann::ordered_json document = {{"stage", options.call.stage},
                                             {"node", options.call.node},
                                             {"moved", moved.ok()},
                                             {"from", outcome.from},
                                             {"view", outcome.view},
                                             {"seconds", outcome.seconds},
                                             {"why", moved.ok() ? "" : moved.error().message}};
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (moved.ok()) {
    fmt::print("stage {} moved from {} to {} in {:.1f} s; view {} serves\n", options.call.stage,
               printable(outcome.from), options.call.node, outcome.seconds, outcome.view);
  }
  return moved.ok() ? kExitOk : report(moved.error());
}

}  // namespace

void add_move(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<MoveCommand>();
  CLI::App* command = app.add_subcommand("move", "Move one stage to another node");
  command->add_option("stage", options->call.stage, "Number of the stage, from 0")->required();
  command->add_option("node", options->call.node, "Where to, as troupe status names it")
      ->required();
  add_cluster_options(*command, options->cluster);
  command->add_option("--model", options->call.model, "Which deployment, if there are several");
  add_deadline_option(*command, options->deadline_seconds, "How long to wait until it is there");
  command->add_flag("--json", options->json, "The outcome as JSON");
  command->footer(
      "The stage is loaded there before the cluster changes over, so requests go on and their\n"
      "tokens are the same. One stage moves at a time. A move that fails, or that the loss of\n"
      "another stage overtakes, is undone: the stage stays where it is.\n"
      "Exit code 0: the stage serves there. 1: it was refused, undone, or not there in time\n"
      "(then it goes on). 3: no cluster, or it does not serve now.\n"
      "\nExamples:\n  troupe move 1 node-3\n  troupe move 0 node-1 --deadline 2min --json");
  command->callback([options, &exit_code] { exit_code = move(*options); });
}

}  // namespace troupe::cli

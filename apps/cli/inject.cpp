// troupe inject: breaks a stage on purpose, to see that the cluster goes on.
#include <fmt/format.h>

#include <memory>

#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct InjectCommand {
  ClusterChoice cluster;
  std::string model, fault;
  uint32_t stage = 0;
};

int inject(const InjectCommand& options) {
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe inject");
  if (!client.ok()) return report(client.error());
  const Result<void> armed =
      client.value()->inject_fault(options.model, options.stage, options.fault);
  if (!armed.ok()) return report(armed.error());
  fmt::print("stage {} will meet {}\n", options.stage, printable(options.fault));
  return kExitOk;
}

}  // namespace

void add_inject(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<InjectCommand>();
  CLI::App* command =
      app.add_subcommand("inject", "Break a stage on purpose (for tests and demonstrations)");
  command->add_option("stage", options->stage, "Number of the stage, from 0")->required();
  command->add_option("fault", options->fault, "What happens to it")->required();
  add_cluster_options(*command, options->cluster);
  command->add_option("--model", options->model, "Which deployment, if there are several");
  command->footer(
      "Only in clusters that were started with --allow-fault-injection.\n"
      "FAULT is throw (the stage actor throws), kill (its process ends as by kill -9), stop (its\n"
      "process freezes) or hang (its compute thread never finishes); then optionally where on a\n"
      "frame's way: @arrive, @accept, @compute, @computed or @sent; then optionally +N, for how\n"
      "many frames go well before. Or flip: one bit of what a micro-batch computed is wrong; also\n"
      "with +N. It happens once. Answers when the fault is armed.\n"
      "\nExamples:\n  troupe inject 1 kill\n  troupe inject 0 kill@computed+3\n  troupe inject 2 "
      "flip+10");
  command->callback([options, &exit_code] { exit_code = inject(*options); });
}

}  // namespace troupe::cli

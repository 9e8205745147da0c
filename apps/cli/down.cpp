// troupe down: ends a cluster that `troupe up` started here. Ending what is not there is fine.
#include <fmt/format.h>

#include <memory>

#include "apps/cli/cluster_record.h"
#include "apps/cli/command.h"
#include "apps/cli/daemon_process.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct DownOptions {
  std::string name = "default";
  double deadline_seconds = 10;
};

int down(const DownOptions& options) {
  const Result<ClusterRecord> record = load_cluster_record(options.name);
  if (!record.ok()) {
    if (record.error().code != ErrorCode::kNotFound) return report(record.error());
    fmt::print("no cluster named \"{}\" is running here\n", options.name);
    return kExitOk;
  }
  const Duration deadline = seconds_of(options.deadline_seconds);
  ProgressLine progress;
  const StopReport stopped = stop_daemons(record.value().daemons, deadline, [&](size_t running) {
    if (running > 0) progress.step(fmt::format("stopping; {} still running", running));
  });
  progress.finish();
  for (const std::string& node : stopped.killed)
    fmt::print("{} did not end within {} s and was killed\n", node, options.deadline_seconds);
  for (const std::string& node : stopped.absent) fmt::print("{} was not running\n", node);
  if (stopped.leftovers_killed > 0)
    fmt::print("{} processes that had outlived their daemon were killed\n",
               stopped.leftovers_killed);
  fmt::print("cluster \"{}\" is down: {} of {} daemons ended in order\n", options.name,
             stopped.ended.size(), record.value().daemons.size());
  const Result<void> removed = remove_cluster_record(options.name);
  return removed.ok() ? kExitOk : report(removed.error());
}

}  // namespace

void add_down(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DownOptions>();
  CLI::App* command = app.add_subcommand("down", "End a cluster that was started with up");
  command->add_option("--name", options->name, "Which cluster")->capture_default_str();
  add_deadline_option(*command, options->deadline_seconds,
                      "How long the daemons get to end in order before they are killed");
  command->footer("Logs stay in ~/.troupe/clusters/NAME until the next up of that name.");
  command->callback([options, &exit_code] { exit_code = down(*options); });
}

}  // namespace troupe::cli

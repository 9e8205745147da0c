// troupe status: who is there, who computes what, what was survived.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/status_report.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct StatusCommand {
  ClusterChoice cluster;
  bool json = false, watch = false;
  double interval_seconds = 1;
};

int show_status(const StatusCommand& options) {
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe status");
  if (!client.ok()) return report(client.error());
  while (true) {
    const Result<ClusterStatus> status = client.value()->status();
    if (!status.ok()) return report(status.error());
    if (options.watch && is_terminal(stdout)) fmt::print("\033[H\033[2J");
    if (options.json) {
      const nlohmann::ordered_json document = status_json(status.value());
      fmt::print("{}\n", document.dump(options.watch ? -1 : 2, ' ', false,
                                       nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("{}", status_text(status.value()));
    }
    std::fflush(stdout);
    if (!options.watch) return kExitOk;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_seconds));
  }
}

}  // namespace

void add_status(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<StatusCommand>();
  CLI::App* command =
      app.add_subcommand("status", "Nodes, stages, tokens/s, faults survived, recent events");
  add_cluster_options(*command, options->cluster);
  command->add_flag("--json", options->json, "As JSON; with --watch one line each time");
  command->add_flag("-w,--watch", options->watch, "Again and again, until Ctrl-C");
  command->add_option("--interval", options->interval_seconds, "Seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->footer(
      "busy is the share of the last seconds a stage computed; hop is from the previous\n"
      "stage's send to this one's receipt; p50 and p99 are the median and the slowest\n"
      "hundredth.\n\nExamples:\n  troupe status --watch\n"
      "  troupe status --json | jq .deployments[0].stages");
  command->callback([options, &exit_code] { exit_code = show_status(*options); });
}

}  // namespace troupe::cli

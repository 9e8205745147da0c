#include "apps/cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "apps/cli/cluster_record.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {

int report(const Error& error) {
  fmt::print(stderr, "{} {}\n", styled("troupe:", Style::kBad, stderr), error.message);
  return error.code == ErrorCode::kUnavailable ? kExitUnreachable : kExitFailed;
}

int report_usage(const std::string& message) {
  fmt::print(stderr, "{} {}\n", styled("troupe:", Style::kBad, stderr), message);
  return kExitUsage;
}

void add_cluster_options(CLI::App& command, ClusterChoice& choice) {
  command.add_option("--name", choice.name, "Which cluster of this machine")->capture_default_str();
  command
      .add_option("--address", choice.address,
                  "Where its client RPC listens, host:port; overrides --name")
      ->envname("TROUPE_ADDRESS");
}

void add_deadline_option(CLI::App& command, double& seconds, const std::string& help) {
  const std::map<std::string, double> units{{"ms", 1e-3}, {"s", 1.0}, {"min", 60.0}};
  command.add_option("--deadline", seconds, help + ": 10s, 500ms, 2min")
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "TIME"))
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

Duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Result<std::string> rpc_address(const ClusterChoice& choice) {
  if (!choice.address.empty()) return choice.address;
  Result<ClusterRecord> record = load_cluster_record(choice.name);
  if (record.ok()) return record.value().rpc;
  if (record.error().code != ErrorCode::kNotFound) return record.error();
  return Error{ErrorCode::kUnavailable,
               fmt::format("no cluster named \"{}\" was started here; start one with\n"
                           "  troupe up smollm2-135m",
                           choice.name)};
}

}  // namespace troupe::cli

// What the commands of `troupe` share: exit codes, how an error is told, where the cluster is. Each
// command is one file with one function that adds it to the parser; its callback does the work and
// sets the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace troupe::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;         // it was tried and did not work
inline constexpr int kExitUsage = 2;          // the command line is wrong
inline constexpr int kExitUnreachable = 3;    // no cluster, or it does not answer
inline constexpr int kExitInterrupted = 130;  // Ctrl-C

// Prints "troupe: message" to standard error; kExitUnreachable for kUnavailable, else kExitFailed.
int report(const Error& error);
// The same for a command line that parses and yet makes no sense; kExitUsage.
int report_usage(const std::string& message);

void add_up(CLI::App& app, int& exit_code);
void add_down(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_status(CLI::App& app, int& exit_code);
void add_pull(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_drain(CLI::App& app, int& exit_code);
void add_undrain(CLI::App& app, int& exit_code);
void add_move(CLI::App& app, int& exit_code);
void add_standby(CLI::App& app, int& exit_code);
void add_inject(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_version(CLI::App& app, int& exit_code);

// --name and --address of every command that talks to a cluster.
struct ClusterChoice {
  std::string name = "default";
  std::string address;  // of its client RPC; empty: from the record that `troupe up` wrote
};
void add_cluster_options(CLI::App& command, ClusterChoice& choice);
// --deadline, as 10s, 500ms or 2min; up to an hour. `seconds` holds the default.
void add_deadline_option(CLI::App& command, double& seconds, const std::string& help);
Duration seconds_of(double seconds);
// Errors: kUnavailable (no cluster of this name was started here).
Result<std::string> rpc_address(const ClusterChoice& choice);

}  // namespace troupe::cli

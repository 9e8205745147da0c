// The two halves of `troupe up`: writing what the daemons will read, and starting them until they
// serve.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "apps/cli/cluster_record.h"
#include "apps/cli/terminal.h"
#include "apps/node/config.h"
#include "base/result.h"

namespace troupe::cli {

struct UpOptions {
  std::string model;  // name or path
  std::string name = "default";
  uint32_t nodes = 1;
  uint32_t stages = 0;  // 0: as many as nodes
  uint32_t port = 7420;
  double timeout_seconds = 300;
  bool allow_fault_injection = false;
  bool realtime = true;  // the nodes' node.realtime
  LogLevel log_level = LogLevel::kInfo;
  DeploymentConfig deployment;  // model, name, stages and nodes_expected are set from the above
};

// A name for people and requests: the built-in one, else the file's.
std::string deployment_name(const std::string& model);

// As the configuration reads it: "1048576", "64MiB". Errors: kInvalidArgument.
Result<uint64_t> parse_bytes(const std::string& text);

// Checks that nothing is in the way and writes each node's folder; starts and records nothing.
// Errors: kAlreadyExists (cluster running, port in use), kInvalidArgument (the configuration's own
// words), kIo.
Result<ClusterRecord> write_cluster(const UpOptions& options, const std::string& model_path);

// Starts the daemons, records them after each start, and returns when the deployment serves. On an
// error what was started still runs, and the message ends with the log of the daemon that matters.
Result<void> start_and_wait(const UpOptions& options, const std::string& program,
                            ClusterRecord& record, ProgressLine& progress,
                            const std::atomic<bool>& interrupted);

}  // namespace troupe::cli

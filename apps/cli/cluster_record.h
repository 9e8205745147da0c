// What `troupe up` remembers of a cluster it started on this machine, for `troupe down` and the
// commands that talk to it:
//   $TROUPE_HOME or ~/.troupe
//     clusters/<name>/cluster.json         this record
//     clusters/<name>/<node>/config.yaml   log   state/
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace troupe::cli {

struct DaemonRecord {
  std::string node;
  std::string folder;   // with config.yaml, log and state/
  int64_t process = 0;  // of the keeper; also its session's and process group's
  uint64_t start_ticks =
      0;  // when it started, in clock ticks since the machine did: tells reused numbers
  std::string config() const { return folder + "/config.yaml"; }
  std::string log() const { return folder + "/log"; }
};

struct ClusterRecord {
  std::string name;
  std::string cluster_id;
  std::string rpc;    // host:port
  std::string model;  // as the user named it
  std::vector<DaemonRecord> daemons;
};

// Errors: kInvalidArgument (a name that cannot be a folder's, or no home directory).
Result<std::string> cluster_folder(const std::string& name);
// Errors: kNotFound, kInvalidFile, kIo.
Result<ClusterRecord> load_cluster_record(const std::string& name);
Result<void> save_cluster_record(const ClusterRecord& record);  // atomic
// Forgets it; its logs stay.
Result<void> remove_cluster_record(const std::string& name);

}  // namespace troupe::cli

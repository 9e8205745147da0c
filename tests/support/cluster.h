// A real cluster for tests: daemons on this machine, started with `troupe up` and ended with
// `troupe down`, in a home of its own. It kills only processes it was told of by the cluster
// itself, and shows what outlived its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/client/client.h"
#include "base/result.h"
#include "base/time.h"

namespace troupe::test {

struct ClusterOptions {
  std::string model;  // path of a GGUF file
  uint32_t nodes = 3;
  uint32_t stages = 3;
  std::vector<std::string> up_arguments{};  // more of `troupe up`
};

// Runs a program and collects what it prints. Errors: kIo (it could not be started).
struct Finished {
  int code = 0;  // 128 + signal if it was killed
  std::string output;
};
Result<Finished> run_program(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment = {});
// TROUPE_BIN as CTest sets it, or the folder given by the caller's own path.
std::string programs_folder();

// Processes whose command line names something in this folder.
std::vector<int> processes_of(const std::string& folder);

class Cluster {
 public:
  // Errors: kUnavailable with what `troupe up` said.
  static Result<std::unique_ptr<Cluster>> start(const ClusterOptions& options);
  ~Cluster();  // down, if it was not
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const std::string& rpc() const { return rpc_; }
  const std::string& home() const { return home_; }
  Result<std::unique_ptr<Client>> client() const;
  Result<Finished> troupe(const std::vector<std::string>& arguments) const;  // the command line
  // Ends it. Errors: kInternal, naming processes of this cluster that are still there.
  Result<void> down();

  // Polls until it serves with `nodes` live nodes. Errors: kDeadlineExceeded with the last status.
  Result<ClusterStatus> wait_until_whole(Client& client, uint32_t nodes, Duration deadline) const;
  // Process ids of this cluster's daemons, keepers and stages.
  std::vector<int> processes() const { return processes_of(home_); }
  // The logs of all nodes, for a failure's report.
  std::string logs() const;

 private:
  Cluster(ClusterOptions options, std::string home);
  ClusterOptions options_;
  std::string home_;
  std::string rpc_;
  bool up_ = false;
};

}  // namespace troupe::test

// The cluster of the sweeps: four daemons and four stages, kept from point to point as long as all
// goes well, and as many clients as there are streams. Before each point every stage is where it
// was at first (moved there if need be), so that every point means what it says.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/client/client.h"
#include "tests/support/answer.h"
#include "tests/support/cluster.h"

namespace troupe::test {

inline constexpr uint32_t kSweepStages = 4;  // and nodes
inline constexpr const char* kSweepHead = "node-1";

struct SweepClusterOptions {
  std::string model, standby = "none";
  uint32_t tokens = 64, streams = 1;
  std::vector<std::string> up_arguments{};
};

// Who runs what now.
struct Places {
  struct Stage {
    std::string node, standby_node{};  // empty: nobody stands by
    int process = 0, standby = 0;      // 0: unknown
  };
  std::vector<Stage> stages;              // [stage]
  std::map<std::string, int> daemons;     // by node, those that live
  std::map<std::string, uint64_t> lives;  // their incarnations

  int daemon(const std::string& node) const;     // 0: none lives
  uint64_t life(const std::string& node) const;  // 0: none lives
};

class SweepCluster {
 public:
  explicit SweepCluster(SweepClusterOptions options) : options_(std::move(options)) {}

  // Starts it and has each stream answered alone: what all others are compared with.
  Result<void> prepare();
  // Starts one if there is none, and waits until it is well: it serves, on all nodes, stage i on
  // node i + 1, with its standby if there shall be one, and no other stage runs. Errors:
  // kDeadlineExceeded, with what it lacks.
  Result<ClusterStatus> ready();
  // No supervisor and no keeper shall give up: waits until the patience of who looks after `what`
  // allows another death ("node-2", or "stage-2").
  void spare(const std::string& what);
  // The next point gets a new one. Errors: processes were left.
  Result<void> end();

  // Errors: kUnavailable, there is no view.
  Result<Places> places(const ClusterStatus& status) const;
  // All processes of a node but its keeper; the daemon is the last.
  std::vector<int> processes_on(const std::string& node) const;
  int keeper_of(const std::string& node) const;  // 0: none lives
  // Seat, standby, or one that is being started: wherever the stage runs now.
  std::vector<int> stage_processes(uint32_t stage) const;
  std::string folder_of(const std::string& node) const;
  uint16_t peer_port() const;  // where workers find the head

  uint32_t streams() const { return options_.streams; }
  GenerateRequest request(uint32_t stream) const;
  const Answer& reference(uint32_t stream) const { return references_[stream]; }
  Client& client(uint32_t stream) { return *clients_[stream]; }
  Client& rpc() { return *rpc_; }
  const SweepClusterOptions& options() const { return options_; }
  const Cluster& cluster() const { return *cluster_; }
  bool running() const { return cluster_ != nullptr; }

 private:
  Result<void> start();
  Result<ClusterStatus> wait_until_well();
  std::string left_over() const;

  SweepClusterOptions options_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<Client> rpc_;
  std::map<std::string, std::deque<Instant>> struck_;
  std::vector<Answer> references_;
};

}  // namespace troupe::test

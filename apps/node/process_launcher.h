// Stage processes as children of the daemon: posix_spawn of this very program, two socket pairs for
// the peer link, and one waiting thread a child, so that its end is told at once. A child dies with
// its daemon (PR_SET_PDEATHSIG, and end of file on its link).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/stage_launcher.h"
#include "transport/peer/peer_links.h"

namespace troupe {

struct LauncherOptions {
  std::string program;
  std::vector<std::string> arguments;  // before the launcher's own
  // Takes over our ends of a child's link.
  std::function<Result<void>(LinkSockets)> adopt;
};

// The descriptors a stage process finds its link at, and the memory for its KV cache, which
// outlives it: the daemon keeps it for the successor.
inline constexpr int kStageMessagesFd = 3, kStageBeatsFd = 4, kStageMemoryFd = 5;

class ProcessLauncher final : public StageLauncher {
 public:
  explicit ProcessLauncher(LauncherOptions options) : options_(std::move(options)) {}
  ~ProcessLauncher() override;

  void on_ended(std::function<void(uint64_t, std::string)> ended) override;
  Result<uint64_t> launch(const LaunchOrder& order) override;
  void forget(const NodeId& child) override;
  void kill(uint64_t process) override;
  void terminate(uint64_t process) override;

 private:
  Result<int> memory_of(const NodeId& child);
  void signal(uint64_t process, int number);
  void wait_for(int process);

  LauncherOptions options_;
  std::mutex mutex_;
  std::function<void(uint64_t, std::string)> ended_;
  std::map<uint64_t, std::thread>
      running_;  // not reaped yet: its number cannot mean another process
  std::vector<std::thread> finished_;
  std::map<NodeId, int> memories_;  // descriptors
};

}  // namespace troupe

// Starting and ending stage processes, as the supervisor needs it; apps/node implements it with
// posix_spawn and a socket pair, tests with nothing at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace troupe {

struct LaunchOrder {
  NodeId child;  // the node id it says hello with: "node-2/stage-1"
  std::string deployment;
  uint32_t stage = 0;
};

class StageLauncher {
 public:
  virtual ~StageLauncher() = default;  // every child has ended and was reaped
  // Who hears, from any thread, that a child ended: its process id and how ("killed by signal 9").
  // Set before launch().
  virtual void on_ended(std::function<void(uint64_t, std::string)> ended) = 0;
  // The process id. The child connects its peer link by itself, and finds the memory that an
  // earlier child of this id left. Errors: kIo, kResourceExhausted.
  virtual Result<uint64_t> launch(const LaunchOrder& order) = 0;
  // Nobody will take over the memory of this child's KV cache any more.
  virtual void forget(const NodeId& child) = 0;
  // Ends it at once (SIGKILL); a process that ended already is no error.
  virtual void kill(uint64_t process) = 0;
  // Asks it to end (SIGTERM).
  virtual void terminate(uint64_t process) = 0;
};

}  // namespace troupe

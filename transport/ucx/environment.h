// The settings UCX must find in the environment. ucp_config_modify accepts most of them and ignores
// them; some are read when the library is loaded, before main. So they are part of starting the
// process: a parent puts them into its child's environment, or main() calls
// enter_ucx_environment(), which executes the program once more with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace troupe {

struct UcxNetwork {
  // One interface. Every byte that reaches UCX's port is trusted with the process's memory, so:
  // loopback, or one the operator declared trusted. 1 to 15 letters, digits, '.', '_', '-'.
  std::string interface = "lo";
  // Ports the worker may listen on, so that a firewall can allow peers only; 0, 0 takes any. One
  // per process.
  uint16_t port_first = 0, port_last = 0;
};

struct UcxSetting {
  std::string name, value;
  // Without a binding one a peer's death can end this process, or a frozen one hold it: the
  // transport refuses to start. The others may be set differently by whoever starts the process
  // (for example to see UCX's log).
  bool binding = true;
};

// Errors: kInvalidArgument (a name that is no interface's, or a port range that is none).
Result<std::vector<UcxSetting>> ucx_environment(const UcxNetwork& network);

// kUnavailable, naming the first binding setting that differs, or nothing.
Result<void> check_ucx_environment(const UcxNetwork& network);

// Puts them into this process's environment. Enough for every binding setting as long as no UCX
// context exists yet; not for those read at load (UCX keeps its signal handlers). Call before other
// threads start.
Result<void> set_ucx_environment(const UcxNetwork& network);

// Returns if the environment is complete; else sets it and executes the same program with the same
// arguments. Call first in main(). Errors: kInvalidArgument, kIo (execution failed).
Result<void> enter_ucx_environment(const UcxNetwork& network, char** arguments);

}  // namespace troupe

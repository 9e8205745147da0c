// Daemons as processes of this machine: started detached, each in a session of its own, and stopped
// by number only after /proc has shown that the number still means what was started.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/cli/cluster_record.h"
#include "base/result.h"
#include "base/time.h"

namespace troupe::cli {

// `trouped` beside this program. Errors: kNotFound.
Result<std::string> daemon_program();

// Starts `trouped --keep --config …` in its own session, standard streams to the daemon's log;
// fills in process and start_ticks. Errors: kIo.
Result<void> start_daemon(const std::string& program, DaemonRecord& daemon);

bool is_running(const DaemonRecord& daemon);

struct StopReport {
  std::vector<std::string> ended;   // nodes that went in order
  std::vector<std::string> killed;  // nodes that had to be killed
  std::vector<std::string> absent;  // nodes that were not running
  size_t leftovers_killed = 0;      // processes of a daemon's session that outlived it
};
// SIGTERM to all, then after `deadline` SIGKILL to the process groups of the rest. Returns when all
// are gone. `tick` is told how many are still there, about ten times a second.
StopReport stop_daemons(const std::vector<DaemonRecord>& daemons, Duration deadline,
                        const std::function<void(size_t)>& tick);

// Errors: kAlreadyExists (someone listens there), kIo.
Result<void> check_port_free(uint16_t port);

}  // namespace troupe::cli

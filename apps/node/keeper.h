// The keeper: a tiny parent that starts the daemon again when it dies, as systemd would; `troupe
// up` starts one a node. It does nothing else, so that there is nothing in it that can fail.
#pragma once

#include <string>
#include <vector>

namespace troupe {

// Exit codes of a daemon, which tell its keeper (or systemd, with RestartForceExitStatus=75) what
// to do.
inline constexpr int kExitStopped = 0;  // done
inline constexpr int kExitUsage =
    2;  // the command line or the configuration is wrong: starting again is no use
inline constexpr int kExitUnable = 1;   // could not start: port in use, unreadable ledger, …
inline constexpr int kExitFailed = 70;  // an actor that everything needs died: start again
inline constexpr int kExitRejoin = 75;  // evicted: start again as a new incarnation

// Runs `program arguments` until it ends in order or must not be started again; returns the exit
// code. SIGTERM and SIGINT end both; SIGUSR2 ends the program in order and starts it again, from
// its file as it is then: an upgrade.
int keep(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace troupe

#include "apps/node/keeper.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "actors/logic/restart.h"
#include "base/log.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace troupe {
namespace {

// Ten lives a minute; more is a daemon that cannot live.
constexpr RestartBudget kBudget{
    .max_restarts = 10, .window = 60s, .backoff_min = 20ms, .backoff_max = 2s};

sigset_t watched_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGUSR2, SIGCHLD}) ::sigaddset(&signals, number);
  return signals;
}

pid_t start(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t process = 0;
  const int status =
      ::posix_spawn(&process, program.c_str(), nullptr, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (status != 0) {
    log_error("keeper", "starting {}: {}", program, std::strerror(status));
    return -1;
  }
  return process;
}

struct Asked {  // by a signal
  bool end = false, restart = false;
};

// The child's wait status; ends it meanwhile if a signal asks for that.
int wait_for(pid_t process, Asked& asked) {
  const sigset_t signals = watched_signals();
  for (;;) {
    int status = 0;
    if (::waitpid(process, &status, WNOHANG) == process) return status;
    int number = 0;
    if (::sigwait(&signals, &number) != 0 || number == SIGCHLD) continue;
    (number == SIGUSR2 ? asked.restart : asked.end) = true;
    ::kill(process, SIGTERM);
  }
}

// False if a signal asked for the end meanwhile.
bool pause_for(Duration duration) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  const timespec time{static_cast<time_t>(duration.count() / 1'000'000'000),
                      static_cast<long>(duration.count() % 1'000'000'000)};
  return ::sigtimedwait(&signals, nullptr, &time) < 0;
}

}  // namespace

int keep(const std::string& program, const std::vector<std::string>& arguments) {
  const sigset_t signals = watched_signals();
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  RestartPolicy policy{kBudget};
  for (bool first = true;; first = false) {
    const pid_t process = start(program, arguments);
    if (process < 0) return kExitUnable;
    policy.on_success(steady_now());
    Asked asked;
    const int status = wait_for(process, asked);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (asked.restart && !asked.end && code == kExitStopped) {
      log_info("keeper", "the daemon ended as it was asked to: starting {} as it is now", program);
      continue;
    }
    // A first life that could not start will not start again either; a later one may find its port
    // free in a moment.
    if (asked.end || code == kExitStopped || code == kExitUsage || (first && code == kExitUnable))
      return code < 0 ? kExitFailed : code;
    const RestartDecision decision = policy.on_failure(steady_now());
    if (const auto* give_up = std::get_if<GiveUp>(&decision)) {
      log_error("keeper", "the daemon {}; giving up", give_up->why);
      return kExitFailed;
    }
    const Duration after = std::get<Restart>(decision).after;
    log_warning("keeper", "the daemon {} {}: starting it again in {:.0f} ms",
                code < 0 ? "was killed by signal" : "ended with code",
                code < 0 ? WTERMSIG(status) : code, to_milliseconds(after));
    if (!pause_for(after)) return kExitStopped;
  }
}

}  // namespace troupe

#include "apps/cli/daemon_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

namespace fs = std::filesystem;

namespace troupe::cli {
namespace {

constexpr const char* kProgram = "trouped";

// The fields of /proc/<process>/stat that matter here (proc(5)).
struct ProcessFacts {
  char state = '?';
  int64_t session = 0;
  uint64_t start_ticks = 0;
};

std::optional<ProcessFacts> facts_of(int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::stringstream text;
  text << file.rdbuf();
  // The program's name is in parentheses and may hold anything, also parentheses: the fields follow
  // the last one.
  const std::string line = text.str();
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end + 1));
  ProcessFacts facts;
  int64_t parent = 0, group = 0;
  fields >> facts.state >> parent >> group >> facts.session;
  std::string skipped;
  for (int field = 7; field <= 21; ++field) fields >> skipped;
  fields >> facts.start_ticks;
  if (!fields) return std::nullopt;
  return facts;
}

// Only together with the start time, or within a session known to be ours.
bool runs_our_program(int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", process), std::ios::binary);
  std::string program;
  std::getline(file, program, '\0');
  // Empty for a moment while the process executes itself again, as trouped does for UCX's settings.
  return program.empty() || fs::path(program).filename() == kProgram;
}

// A child of ours that ended stays a zombie until it is waited for; of others' children the system
// takes care.
void collect(int64_t process) {
  waitpid(static_cast<pid_t>(process), nullptr, WNOHANG);
}

// What is still in the session of a daemon that is gone: its own daemon or stages, if the keeper
// was killed.
size_t kill_session(int64_t session) {
  size_t killed = 0;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename().string();
    int64_t process = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc{} || end != name.data() + name.size() || process <= 1) continue;
    const std::optional<ProcessFacts> facts = facts_of(process);
    if (!facts || facts->session != session || facts->state == 'Z') continue;
    if (!runs_our_program(process)) continue;
    if (kill(static_cast<pid_t>(process), SIGKILL) == 0) ++killed;
  }
  return killed;
}

// Waits until none of the daemons runs or the time is over; returns how many still do.
size_t wait_for_end(const std::vector<DaemonRecord>& daemons, Duration deadline,
                    const std::function<void(size_t)>& tick) {
  const Instant until = steady_now() + deadline;
  while (true) {
    size_t running = 0;
    for (const DaemonRecord& daemon : daemons) {
      collect(daemon.process);
      if (is_running(daemon)) ++running;
    }
    if (tick) tick(running);
    if (running == 0 || steady_now() >= until) return running;
    std::this_thread::sleep_for(50ms);
  }
}

}  // namespace

Result<std::string> daemon_program() {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  const fs::path program = self.parent_path() / kProgram;
  if (failure || access(program.c_str(), X_OK) != 0)
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is missing beside this program (looked for {})", kProgram,
                             program.string())};
  return program.string();
}

Result<void> start_daemon(const std::string& program, DaemonRecord& daemon) {
  std::string arguments[] = {program, "--keep", "--config", daemon.config()};
  char* pointers[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                      arguments[3].data(), nullptr};
  const std::string log = daemon.log();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // A session of its own: no Ctrl-C and no hang-up of this terminal reaches it. Signals as a fresh
  // program has them.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t process = -1;
  const int failure =
      posix_spawn(&process, program.c_str(), &actions, &attributes, pointers, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0)
    return Error{ErrorCode::kIo,
                 fmt::format("cannot start {}: {}", program, std::strerror(failure))};
  daemon.process = process;
  const std::optional<ProcessFacts> facts = facts_of(process);
  if (!facts)
    return Error{ErrorCode::kIo, fmt::format("{} ended at once; see {}", daemon.node, log)};
  daemon.start_ticks = facts->start_ticks;
  return {};
}

bool is_running(const DaemonRecord& daemon) {
  const std::optional<ProcessFacts> facts = facts_of(daemon.process);
  return facts && facts->start_ticks == daemon.start_ticks && facts->state != 'Z' &&
         runs_our_program(daemon.process);
}

StopReport stop_daemons(const std::vector<DaemonRecord>& daemons, Duration deadline,
                        const std::function<void(size_t)>& tick) {
  StopReport report;
  std::vector<DaemonRecord> running;
  for (const DaemonRecord& daemon : daemons) {
    collect(daemon.process);
    if (is_running(daemon)) {
      running.push_back(daemon);
      kill(static_cast<pid_t>(daemon.process), SIGTERM);
    } else {
      report.absent.push_back(daemon.node);
    }
  }
  wait_for_end(running, deadline, tick);
  for (const DaemonRecord& daemon : running) {
    if (is_running(daemon)) {
      report.killed.push_back(daemon.node);
      kill(-static_cast<pid_t>(daemon.process), SIGKILL);
    } else {
      report.ended.push_back(daemon.node);
    }
  }
  wait_for_end(running, 5s, tick);
  for (const DaemonRecord& daemon : daemons) {
    // A process of this number that is not the one we started: the session is somebody else's.
    const std::optional<ProcessFacts> facts = facts_of(daemon.process);
    if (!facts || facts->start_ticks == daemon.start_ticks)
      report.leftovers_killed += kill_session(daemon.process);
  }
  return report;
}

Result<void> check_port_free(uint16_t port) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return Error{ErrorCode::kIo, fmt::format("socket: {}", std::strerror(errno))};
  const int on = 1;  // as the daemons do: a port in TIME_WAIT is free
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                    listen(probe, 1) == 0;
  const int why = errno;
  close(probe);
  if (free) return {};
  if (why == EADDRINUSE)
    return Error{ErrorCode::kAlreadyExists,
                 fmt::format("port {} of 127.0.0.1 is in use; choose others with --port", port)};
  return Error{ErrorCode::kIo, fmt::format("port {}: {}", port, std::strerror(why))};
}

}  // namespace troupe::cli

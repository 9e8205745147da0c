#include "apps/node/process_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace troupe {
namespace {

std::string describe(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

void close_all(const LinkSockets& sockets) {
  ::close(sockets.messages);
  ::close(sockets.beats);
}

constexpr int kFirst = 16;  // above every number that a child expects something at

// The sockets above the numbers the child wants them at, so that one dup2 cannot overwrite the
// other's source.
LinkSockets above_targets(const LinkSockets& sockets) {
  const LinkSockets moved{::fcntl(sockets.messages, F_DUPFD_CLOEXEC, kFirst),
                          ::fcntl(sockets.beats, F_DUPFD_CLOEXEC, kFirst)};
  close_all(sockets);
  return moved;
}

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    const LinkSockets& sockets, int memory) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, sockets.messages, kStageMessagesFd);
  ::posix_spawn_file_actions_adddup2(&actions, sockets.beats, kStageBeatsFd);
  ::posix_spawn_file_actions_adddup2(&actions, memory, kStageMemoryFd);
  // The daemon blocks the signals it waits for; the child sets up its own.
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t process = 0;
  const int status =
      ::posix_spawn(&process, program.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (status != 0)
    return Error{
        status == EAGAIN || status == ENOMEM ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
        fmt::format("starting {}: {}", program, std::strerror(status))};
  return process;
}

}  // namespace

ProcessLauncher::~ProcessLauncher() {
  std::map<uint64_t, std::thread> running;
  {
    const std::lock_guard lock(mutex_);
    ended_ = nullptr;
    for (const auto& [process, thread] : running_) ::kill(static_cast<pid_t>(process), SIGKILL);
    running.swap(running_);
  }
  for (auto& [process, thread] : running) thread.join();
  for (std::thread& thread : finished_) thread.join();
  for (const auto& [child, memory] : memories_) ::close(memory);
}

void ProcessLauncher::on_ended(std::function<void(uint64_t, std::string)> ended) {
  const std::lock_guard lock(mutex_);
  ended_ = std::move(ended);
}

Result<uint64_t> ProcessLauncher::launch(const LaunchOrder& order) {
  TROUPE_TRY(LinkSocketPair pair, make_link_sockets());
  std::vector<std::string> arguments = options_.arguments;
  arguments.insert(arguments.end(),
                   {"--stage-process", order.child, "--parent", std::to_string(::getpid())});
  const LinkSockets theirs = above_targets(pair.theirs);
  const auto memory = memory_of(order.child);
  const auto process = memory.ok() ? spawn(options_.program, arguments, theirs, memory.value())
                                   : Result<pid_t>(memory.error());
  close_all(theirs);
  if (!process.ok()) {
    close_all(pair.ours);
    return process.error();
  }
  const auto adopted = options_.adopt(pair.ours);
  if (!adopted.ok()) {
    ::kill(process.value(), SIGKILL);
    ::waitpid(process.value(), nullptr, 0);
    return adopted.error();
  }
  const std::lock_guard lock(mutex_);
  for (std::thread& thread : finished_) thread.join();
  finished_.clear();
  running_.emplace(static_cast<uint64_t>(process.value()),
                   std::thread([this, pid = process.value()] { wait_for(pid); }));
  return static_cast<uint64_t>(process.value());
}

// Made with the first child of this id; sparse until somebody writes.
Result<int> ProcessLauncher::memory_of(const NodeId& child) {
  const std::lock_guard lock(mutex_);
  const auto known = memories_.find(child);
  if (known != memories_.end()) return known->second;
  const int low = ::memfd_create("troupe-kv", MFD_CLOEXEC);
  const int memory = low < 0 ? low : ::fcntl(low, F_DUPFD_CLOEXEC, kFirst);
  const int status = errno;
  if (low >= 0) ::close(low);
  if (memory < 0)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("memory for a stage's KV cache: {}", std::strerror(status))};
  memories_.emplace(child, memory);
  return memory;
}

void ProcessLauncher::forget(const NodeId& child) {
  const std::lock_guard lock(mutex_);
  const auto known = memories_.find(child);
  if (known == memories_.end()) return;
  ::close(known->second);
  memories_.erase(known);
}

void ProcessLauncher::wait_for(int process) {
  // First only look, so that the number stays taken until kill() can no longer mean it.
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  std::function<void(uint64_t, std::string)> ended;
  int status = 0;
  {
    const std::lock_guard lock(mutex_);
    ::waitpid(process, &status, 0);
    const auto found = running_.find(static_cast<uint64_t>(process));
    if (found != running_.end()) {
      finished_.push_back(std::move(found->second));
      running_.erase(found);
    }
    ended = ended_;
  }
  if (ended) ended(static_cast<uint64_t>(process), describe(status));
}

void ProcessLauncher::kill(uint64_t process) {
  signal(process, SIGKILL);
}
void ProcessLauncher::terminate(uint64_t process) {
  signal(process, SIGTERM);
}

void ProcessLauncher::signal(uint64_t process, int number) {
  const std::lock_guard lock(mutex_);
  if (running_.contains(process)) ::kill(static_cast<pid_t>(process), number);
}

}  // namespace troupe

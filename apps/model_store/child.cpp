#include "apps/model_store/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>

#include "base/time.h"

namespace troupe {
namespace {

// Ours without the names that are set anew, then those.
std::vector<std::string> environment_of(const ChildOptions& options) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const auto replaced = [&](const auto& added) {
      return text.substr(0, text.find('=')) == added.first;
    };
    if (std::none_of(options.environment.begin(), options.environment.end(), replaced))
      result.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment)
    result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<int> run_child(const ChildOptions& options) {
  std::vector<std::string> arguments = options.arguments, environment = environment_of(options);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, arguments.front().c_str(), &actions, nullptr,
                                   pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0)
    return Error{failure == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("cannot start {}: {}", arguments.front(), std::strerror(failure))};
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, options.tick ? WNOHANG : 0);
    if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR)
      return Error{ErrorCode::kIo,
                   fmt::format("waiting for {}: {}", arguments.front(), std::strerror(errno))};
    if (options.tick) {
      options.tick();
      std::this_thread::sleep_for(100ms);
    }
  }
}

std::string tail_of_file(const std::string& path, size_t lines) {
  std::ifstream file(path);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(line);
    if (last.size() > lines) last.pop_front();
  }
  return fmt::format("{}", fmt::join(last, "\n"));
}

}  // namespace troupe

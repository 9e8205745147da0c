#include "tests/support/cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/prng.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace troupe::test {
namespace fs = std::filesystem;
namespace {

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool port_is_free(uint16_t port) {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return free;
}

// Two neighbouring free ports below the kernel's ephemeral range, from a random place, so that test
// runs side by side rarely meet.
uint16_t free_port_pair() {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto port = static_cast<uint16_t>(20000 + random_u64() % 10000);
    if (port_is_free(port) && port_is_free(static_cast<uint16_t>(port + 1))) return port;
  }
  return 0;
}

}  // namespace

std::string programs_folder() {
  const char* folder = std::getenv("TROUPE_BIN");
  return folder ? folder : "build/release/bin";
}

Result<Finished> run_program(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error{ErrorCode::kIo, "pipe"};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char*> argv, env;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const auto& entry : environment) env.push_back(const_cast<char*>(entry.c_str()));
  for (char** entry = environ; *entry != nullptr; ++entry) env.push_back(*entry);
  env.push_back(nullptr);
  pid_t process = 0;
  const int status = ::posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), env.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Finished finished;
  if (status != 0) {
    ::close(ends[0]);
    return Error{ErrorCode::kIo, fmt::format("{}: {}", arguments[0], std::strerror(status))};
  }
  char buffer[4096];
  // A daemon that was started in the background may hold the pipe: stop reading when the program
  // itself has ended.
  int wait_status = 0;
  bool ended = false;
  for (;;) {
    pollfd source{ends[0], POLLIN, 0};
    const int ready = ::poll(&source, 1, ended ? 0 : 50);
    if (ready > 0) {
      const ssize_t count = ::read(ends[0], buffer, sizeof buffer);
      if (count <= 0) break;
      finished.output.append(buffer, static_cast<size_t>(count));
    } else if (ended) {
      break;
    }
    if (!ended && ::waitpid(process, &wait_status, WNOHANG) == process) ended = true;
  }
  ::close(ends[0]);
  if (!ended) ::waitpid(process, &wait_status, 0);
  finished.code = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  return finished;
}

Cluster::Cluster(ClusterOptions options, std::string home)
    : options_(std::move(options)), home_(std::move(home)) {}

Result<std::unique_ptr<Cluster>> Cluster::start(const ClusterOptions& options) {
  std::string home = (fs::temp_directory_path() / "troupe-test-XXXXXX").string();
  if (::mkdtemp(home.data()) == nullptr) return Error{ErrorCode::kIo, "mkdtemp: " + home};
  std::unique_ptr<Cluster> cluster(new Cluster(options, home));
  const uint16_t port = free_port_pair();
  cluster->rpc_ = fmt::format("127.0.0.1:{}", port + 1);
  std::vector<std::string> arguments{"up",
                                     "--nodes",
                                     std::to_string(options.nodes),
                                     "--stages",
                                     std::to_string(options.stages),
                                     "--port",
                                     std::to_string(port)};
  arguments.insert(arguments.end(), options.up_arguments.begin(), options.up_arguments.end());
  arguments.push_back(options.model);
  TROUPE_TRY(const Finished up, cluster->troupe(arguments));
  if (up.code != 0)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("troupe up: code {}\n{}", up.code, up.output)};
  cluster->up_ = true;
  return cluster;
}

Cluster::~Cluster() {
  if (up_) (void)down();
  std::error_code ignored;
  fs::remove_all(home_, ignored);
}

Result<Finished> Cluster::troupe(const std::vector<std::string>& arguments) const {
  std::vector<std::string> line{programs_folder() + "/troupe"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return run_program(line, {"TROUPE_HOME=" + home_});
}

Result<std::unique_ptr<Client>> Cluster::client() const {
  return Client::connect({rpc_});
}

Result<void> Cluster::down() {
  up_ = false;
  TROUPE_TRY(const Finished finished, troupe({"down"}));
  if (finished.code != 0)
    return Error{ErrorCode::kInternal,
                 fmt::format("troupe down: code {}\n{}", finished.code, finished.output)};
  const auto left = processes();
  if (left.empty()) return {};
  for (const int process : left) ::kill(process, SIGKILL);
  return Error{ErrorCode::kInternal, fmt::format("{} processes outlived the cluster", left.size())};
}

Result<ClusterStatus> Cluster::wait_until_whole(Client& client, uint32_t nodes,
                                                Duration deadline) const {
  const Instant end = steady_now() + deadline;
  std::string last = "no status";
  while (steady_now() < end) {
    auto status = client.status();
    if (status.ok()) {
      uint32_t alive = 0;
      for (const NodeStatus& node : status.value().nodes) alive += node.state == NodeState::kAlive;
      const DeploymentStatus& deployment = status.value().deployments.front();
      if (alive == nodes && deployment.state == DeploymentState::kServing) return status;
      last = fmt::format("{} nodes alive, {} {}", alive, to_string(deployment.state),
                         deployment.detail);
    } else {
      last = to_string(status.error());
    }
    ::usleep(20'000);
  }
  return Error{ErrorCode::kDeadlineExceeded, "not whole in time: " + last};
}

std::vector<int> processes_of(const std::string& folder) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_all(entry.path() / "cmdline").find(folder + "/") != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

std::string Cluster::logs() const {
  std::string text;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(home_, ignored))
    if (entry.path().filename() == "log")
      text += "==== " + entry.path().string() + "\n" + read_all(entry.path());
  return text;
}

}  // namespace troupe::test

#include "tests/integration/sweep_network.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/cluster.h"

namespace troupe::test {
namespace fs = std::filesystem;
namespace {

// Runs a program of the system's folders. Errors: kUnavailable (there is none), kIo (what it said).
Result<void> run_tool(const std::string& name, std::vector<std::string> arguments) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (!fs::exists(folder + name)) continue;
    arguments.insert(arguments.begin(), folder + name);
    TROUPE_TRY(const Finished finished, run_program(arguments));
    if (finished.code == 0) return {};
    return Error{ErrorCode::kIo, fmt::format("{}: {}", name, finished.output)};
  }
  return Error{ErrorCode::kUnavailable, "no program " + name};
}

Result<void> run_ip(const std::string& lines) {
  std::string path = (fs::temp_directory_path() / "troupe-ip-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) return Error{ErrorCode::kIo, "mkstemp: " + path};
  ::close(file);
  std::ofstream(path) << lines;
  const auto done = run_tool("ip", {"-batch", path});
  fs::remove(path);
  return done;
}

std::string rules(const char* verb, const std::set<uint16_t>& ports) {
  std::string lines;
  for (const uint16_t port : ports)
    for (const char* side : {"sport", "dport"})
      lines += fmt::format("rule {} pref 100 ipproto tcp {} {} type blackhole\n", verb, side, port);
  return lines;
}

std::set<std::string> sockets_of(const std::vector<int>& processes) {
  std::set<std::string> inodes;
  std::error_code ended;  // a process may end while it is looked at
  for (const int process : processes)
    for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", process), ended)) {
      const std::string target = fs::read_symlink(entry.path(), ended).string();
      if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
  return inodes;
}

}  // namespace

std::set<uint16_t> tcp_ports_of(const std::vector<int>& processes) {
  const std::set<std::string> inodes = sockets_of(processes);
  std::set<uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, probes, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> probes >>
        inode;
    const size_t colon = local.find(':');
    if (colon == std::string::npos || !inodes.contains(inode)) continue;
    uint16_t port = 0;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), port, 16);
    ports.insert(port);
  }
  return ports;
}

Result<PrivateNetwork> PrivateNetwork::enter() {
  if (::unshare(CLONE_NEWNET) != 0)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("no network namespace: {}", std::strerror(errno))};
  // The kernel looks up local addresses first of all; from now on it asks our rules before.
  const auto done = run_ip("link set lo up\nrule add pref 10000 lookup local\nrule del pref 0\n");
  if (!done.ok())
    return Error{ErrorCode::kUnavailable, "no rules in a network namespace: " + done.error().message};
  return PrivateNetwork();
}

Result<void> PrivateNetwork::cut(const std::vector<int>& processes) {
  std::set<uint16_t> more;
  for (const uint16_t port : tcp_ports_of(processes))
    if (!cut_.contains(port)) more.insert(port);
  if (more.empty()) return {};
  cut_.insert(more.begin(), more.end());
  return run_ip(rules("add", more));
}

Result<void> PrivateNetwork::heal() {
  if (cut_.empty()) return {};
  const std::string lines = rules("del", cut_);
  cut_.clear();
  return run_ip(lines);
}

Result<void> reset_connections(const std::vector<int>& processes) {
  std::vector<std::string> arguments{"-K", "-t"};
  for (const uint16_t port : tcp_ports_of(processes)) {
    if (arguments.size() > 2) arguments.push_back("or");
    arguments.insert(arguments.end(), {"sport", "=", fmt::format(":{}", port)});
  }
  if (arguments.size() == 2) return {};
  return run_tool("ss", arguments);
}

}  // namespace troupe::test

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

constexpr int kAllow = 40, kDrop = 50, kLocal = 100;  // preferences: the lowest is asked first

// Runs lines of ip(8). Errors: kUnavailable (there is none), kIo (what it said).
Result<void> run_ip(const std::string& lines) {
  std::string path = (fs::temp_directory_path() / "troupe-ip-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) return Error{ErrorCode::kIo, "mkstemp: " + path};
  ::close(file);
  std::ofstream(path) << lines;
  Result<void> done = Error{ErrorCode::kUnavailable, "no program ip"};
  for (const char* program : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (!fs::exists(program)) continue;
    const auto finished = run_program({program, "-batch", path});
    done = !finished.ok()               ? Result<void>(finished.error())
           : finished.value().code == 0 ? Result<void>()
                                        : Error{ErrorCode::kIo, "ip: " + finished.value().output};
    break;
  }
  fs::remove(path);
  return done;
}

std::string rule(const char* verb, int preference, const std::string& selector) {
  return fmt::format("rule {} pref {} ipproto tcp {} {}\n", verb, preference, selector,
                     preference == kAllow ? "lookup local" : "type blackhole");
}

std::string from_to(uint16_t from, uint16_t to) {
  return fmt::format("sport {} dport {}", from, to);
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

struct Connection {
  uint16_t local = 0, remote = 0;  // remote 0: it listens
  std::string inode;
};

uint16_t port_of(const std::string& address) {
  uint16_t port = 0;
  const size_t colon = std::min(address.find(':'), address.size() - 1);
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), port, 16);
  return port;
}

std::vector<Connection> connections() {
  std::vector<Connection> all;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);  // titles
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, repeated, user, probes, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> repeated >> user >> probes >>
        inode;
    if (!inode.empty()) all.push_back({port_of(local), port_of(remote), inode});
  }
  return all;
}

}  // namespace

Result<PrivateNetwork> PrivateNetwork::enter() {
  if (::unshare(CLONE_NEWNET) != 0)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("no network namespace: {}", std::strerror(errno))};
  // The kernel looks local addresses up first of all; from now on it asks our rules before.
  const auto done = run_ip(
      fmt::format("link set lo up\nrule add pref {} lookup local\nrule del pref 0\n", kLocal));
  if (!done.ok())
    return Error{ErrorCode::kUnavailable,
                 "no rules in a network namespace: " + done.error().message};
  return PrivateNetwork();
}

Result<void> PrivateNetwork::cut(const std::string& folder, CutDirection direction,
                                 uint16_t dialled) {
  TROUPE_TRY_VOID(heal());
  folder_ = folder;
  direction_ = direction;
  dialled_ = dialled;
  return apply(rules_now());
}

PrivateNetwork::Rules PrivateNetwork::rules_now() const {
  const std::set<std::string> inodes = sockets_of(processes_of(folder_));
  const std::vector<Connection> all = connections();
  std::set<uint16_t> inside;  // ports of the node that is cut off
  for (const Connection& one : all)
    if (inodes.contains(one.inode)) inside.insert(one.local);
  const bool out = direction_ != CutDirection::kIn, in = direction_ != CutDirection::kOut;
  Rules rules;
  for (const Connection& one : all) {
    const bool own = inodes.contains(one.inode);
    if (one.remote == 0) {
      if (own && out) rules.drop.insert(fmt::format("sport {}", one.local));
      if (own && in) rules.drop.insert(fmt::format("dport {}", one.local));
    } else if (!own && !inside.contains(one.local) && !inside.contains(one.remote)) {
      // Of others alone.
      if (one.local == dialled_ || one.remote == dialled_)
        rules.allow.insert(from_to(one.local, one.remote));
    } else if (own && inside.contains(one.remote)) {
      rules.allow.insert(from_to(one.local, one.remote));  // inside the node
    } else if (own) {
      if (out) rules.drop.insert(from_to(one.local, one.remote));
      if (in) rules.drop.insert(from_to(one.remote, one.local));
    }
  }
  if (out) rules.drop.insert(fmt::format("dport {}", dialled_));
  if (in) rules.drop.insert(fmt::format("sport {}", dialled_));
  return rules;
}

// Adds what does not stand yet; nothing is taken back before heal().
Result<void> PrivateNetwork::apply(const Rules& rules) {
  std::string lines;
  for (const std::string& selector : rules.allow)
    if (standing_.allow.insert(selector).second) lines += rule("add", kAllow, selector);
  for (const std::string& selector : rules.drop)
    if (standing_.drop.insert(selector).second) lines += rule("add", kDrop, selector);
  if (lines.empty()) return {};
  // Connections remember their way; they must ask again.
  return run_ip(lines + "route flush cache\n");
}

Result<void> PrivateNetwork::keep_up() {
  if (folder_.empty()) return {};
  std::set<uint64_t> now;
  for (const Connection& one : connections()) now.insert(uint64_t{one.local} << 16 | one.remote);
  if (now == seen_) return {};
  seen_ = std::move(now);
  return apply(rules_now());
}

Result<void> PrivateNetwork::heal() {
  if (folder_.empty()) return {};
  folder_.clear();
  seen_.clear();
  const Rules standing = std::exchange(standing_, {});
  std::string lines;
  for (const std::string& selector : standing.drop) lines += rule("del", kDrop, selector);
  for (const std::string& selector : standing.allow) lines += rule("del", kAllow, selector);
  return run_ip(lines + "route flush cache\n");
}

}  // namespace troupe::test

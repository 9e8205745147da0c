// A cut of the network, without a firewall. The sweep and all it starts live in a network namespace
// of their own, whose loopback looks addresses up late enough that routing rules can swallow single
// ports: every packet from or to a port of a cut process is dropped without a word, in both
// directions, on connections that are open and on new ones to it. A cut process that dials out
// again gets a port nobody knew: cut() has to be repeated while the cut lasts, and such a new
// connection lives for the milliseconds between.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace troupe::test {

// Local TCP ports of these processes, connected or listening.
std::set<uint16_t> tcp_ports_of(const std::vector<int>& processes);

class PrivateNetwork {
 public:
  // This process leaves the machine's network for one with nothing but a loopback interface. Call
  // it before there is any thread. Errors: kUnavailable, with what is missing (the right to do so,
  // the program ip).
  static Result<PrivateNetwork> enter();

  // Their packets are dropped until heal(). Repeat it to have new ports covered as well.
  Result<void> cut(const std::vector<int>& processes);
  Result<void> heal();

 private:
  std::set<uint16_t> cut_;
};

// Both ends of every connection of these processes see it aborted. Works in any network. Errors:
// kUnavailable (no program ss).
Result<void> reset_connections(const std::vector<int>& processes);

}  // namespace troupe::test

// A cut of the network, without a firewall. The sweep and all it starts live in a network namespace
// of their own, whose loopback looks local addresses up late enough that routing rules can swallow
// single connections: packets of a cut direction are dropped without a word, and TCP repeats them
// until it is healed.
//
// What a node dials while it is cut off goes to the head's port, which is closed to everybody
// meanwhile but for the connections that others have; any other new connection is found by looking
// again (keep_up) and lives until then.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace troupe::test {

enum class CutDirection : uint8_t {
  kBoth,
  kOut,  // nothing that the node says arrives
  kIn,   // the node hears nothing
};

class PrivateNetwork {
 public:
  // This process leaves the machine's network for one with nothing but a loopback interface. Call
  // it before there is any thread. Errors: kUnavailable, with what is missing (the right to do so,
  // the program ip).
  static Result<PrivateNetwork> enter();

  // Cuts all processes whose command line names this folder off from all others, until heal().
  // `dialled` is the port that they dial to come back.
  Result<void> cut(const std::string& folder, CutDirection direction, uint16_t dialled);
  // To be called every few milliseconds while a cut lasts.
  Result<void> keep_up();
  Result<void> heal();

 private:
  struct Rules {
    std::set<std::string> allow, drop;  // selectors of ip-rule(8)
  };
  Rules rules_now() const;
  Result<void> apply(const Rules& rules);

  std::string folder_;  // of who is cut off; empty: nobody
  CutDirection direction_ = CutDirection::kBoth;
  uint16_t dialled_ = 0;
  Rules standing_;
  std::set<uint64_t> seen_;  // connections when it was last looked, each as two ports
};

}  // namespace troupe::test

// Who is in the cluster. A node has a stable name and a new random incarnation for each life. A
// node that comes back under its name in a new life replaces the old one at once (a ghost must
// never block its own successor); a life that was declared dead stays dead, whatever it says: it
// must discard its state and come back as a new one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace troupe {

struct Member {
  NodeId node;
  Incarnation incarnation;
  Instant since;
};

struct HelloOutcome {
  enum class Kind : uint8_t {
    kJoined,    // was not here
    kKnown,     // is here already in this life: a reconnection or a repeat
    kReplaced,  // `old` was here and is dead now
    kRefused,   // see why
  };
  Kind kind = Kind::kJoined;
  Incarnation old;
  std::string why;
};

class Membership {
 public:
  struct Limits {
    uint32_t members_max = 1024;
    uint32_t dead_max = 4096;  // dead lives remembered; beyond, the oldest is forgotten
  };
  explicit Membership(Limits limits);
  Membership() : Membership(Limits{}) {}

  HelloOutcome hello(const NodeId& node, Incarnation incarnation, Instant now);
  // The life is over (declared dead, or it left). False if it is not a member in this life: nothing
  // changes then, but the life is remembered as dead all the same.
  bool lost(const NodeId& node, Incarnation incarnation);

  std::optional<Member> find(const NodeId& node) const;
  bool dead(const NodeId& node, Incarnation incarnation) const;
  std::vector<Member> members() const;  // by name

 private:
  struct Life {
    NodeId node;
    Incarnation incarnation;
    friend bool operator==(const Life&, const Life&) = default;
  };
  void bury(const NodeId& node, Incarnation incarnation);

  Limits limits_;
  std::map<NodeId, Member> members_;
  std::deque<Life> dead_;  // oldest first
};

}  // namespace troupe

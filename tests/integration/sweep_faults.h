// The faults of crash_sweep: what is done to the processes that hold a stage, at the very point of
// a frame's way that was asked for. For faults that come from outside the stage is first frozen at
// the point (actors/dataplane/fault_points.h), so that "the machine is cut off between computing
// and sending" means exactly that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/client/client.h"
#include "base/result.h"
#include "base/time.h"
#include "tests/integration/sweep_network.h"
#include "tests/support/cluster.h"

namespace troupe::test {

inline constexpr uint32_t kSweepStages = 4;

// kill        the stage's process is killed (SIGKILL)
// stop        the stage's process is frozen (SIGSTOP)
// throw, hang the stage fails, or its compute thread never finishes
// daemon      the daemon of the stage's node is killed, and with it its stage processes
// zombie      all of the stage's node but its keeper is frozen; when others have taken its seats it
//             wakes up, the stage processes first, and sends what it still had to send
// cut         no packet from or to the stage's node comes through, until others have taken its
//             seats; then the network is whole again
// reset       all connections of the stage's node are aborted, once
// reset-data  the same of the stage process alone: its node does not notice
struct Point {
  std::string kind;
  std::string phase;  // a point of fault_points.h, or "sampled": the last stage drew the token
  uint32_t stage = 0, position = 0;
  std::string fault() const { return kind + "@" + phase; }
};

struct KindTraits {
  const char* name;
  bool whole_node;  // strikes more than one stage's process, and can not hit the head itself
  bool returns;     // release() brings back what was thought dead
};
// Null: no such kind.
const KindTraits* find_kind(const std::string& name);
// Whether the grid has it: the head is no victim of what strikes whole nodes, and a stage fails by
// itself at its own points only.
bool is_point(const Point& point);

// The processes that hold a stage.
struct Victim {
  std::string node;
  int stage_process = 0, daemon = 0;
  int last_stage_process = 0;      // of the last stage, which draws the tokens
  std::vector<int> stages, all{};  // of the node: stage processes; and its daemon
};

struct Strike {
  Instant at{};
  int64_t unix_ms = 0;
};

class Striker {
 public:
  // `network` may be null if no point is a cut.
  Striker(const Cluster& cluster, Client& rpc, PrivateNetwork* network)
      : cluster_(cluster), rpc_(rpc), network_(network) {}
  ~Striker() { (void)release(); }
  Striker(const Striker&) = delete;
  Striker& operator=(const Striker&) = delete;

  // Who holds the stage now. Before the answer begins, so that a strike is quick.
  Result<void> aim(const ClusterStatus& status, const Point& point);
  // Returns when it has happened. Errors: kDeadlineExceeded (no frame came to that point), and
  // those of injecting faults.
  Result<Strike> strike();
  // To be called every few milliseconds while a cut lasts: covers connections that are new.
  void keep_up();
  // Wakes what was frozen, heals what was cut.
  Result<void> release();

 private:
  Result<void> arm(uint32_t stage, const std::string& fault);
  Result<Strike> strike_by_itself();
  Result<Strike> strike_from_outside();
  Result<void> act();

  const Cluster& cluster_;
  Client& rpc_;
  PrivateNetwork* network_;
  Point point_;
  Victim victim_;
  bool cut_ = false;
  std::vector<int> frozen_;  // in the order in which they wake up
};

}  // namespace troupe::test

// The faults of crash_sweep: what is done to the processes that hold a stage, at the very point of
// a frame's way that was asked for. For faults that come from outside the stage is first frozen at
// the point (actors/dataplane/fault_points.h), so that "the machine is cut off between computing
// and sending" means exactly that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/sweep_network.h"
#include "tests/integration/sweep_run.h"

namespace troupe::test {

// kill        the stage's process is killed (SIGKILL)
// stop        the stage's process is frozen (SIGSTOP)
// throw, hang the stage fails, or its compute thread never finishes
// daemon      the daemon of the stage's node is killed, and with it its stage processes
// zombie      all of the stage's node but its keeper is frozen; when others have taken its seats it
//             wakes up, the stage processes first, and sends what it still had to send
// cut         no packet from or to the stage's node comes through, until others have taken its
//             seats; then the network is whole again
// cut-out     the same of packets from it alone
// cut-in      the same of packets to it alone
struct Point {
  std::string kind;
  std::string phase;  // a point of fault_points.h, or "sampled": the last stage drew the token
  uint32_t stage = 0, position = 0;
  std::string fault() const { return kind + "@" + phase; }
};

struct KindTraits {
  const char* name;
  bool whole_node;  // strikes more than one stage's process, and can not hit the head itself
  bool returns;     // comes back when others have taken its seats
};
// Null: no such kind.
const KindTraits* find_kind(const std::string& name);
// Whether the grid has it: the head is no victim of what strikes whole nodes, and a stage fails by
// itself at its own points only.
bool is_point(const Point& point);
bool needs_network(const std::string& kind);

// 'Z' or 'X' for a process that is gone, 'T' for a frozen one.
char process_state(int process);
void freeze(const std::vector<int>& processes);
// In this order; the last one, the daemon, a little later, so that its stages can say what they
// had to say.
void thaw(const std::vector<int>& processes);

class PointFault final : public Disturbance {
 public:
  // `network` may be null if the point is no cut.
  PointFault(SweepCluster& cluster, PrivateNetwork* network, Point point)
      : cluster_(cluster), network_(network), point_(std::move(point)) {}
  ~PointFault() override { (void)release(); }

  Result<void> aim(const ClusterStatus& status) override;
  // Errors: kDeadlineExceeded (no frame came to that point), and those of injecting faults.
  Result<Strike> strike() override;
  void tick(const Strike&) override;
  bool holds() const override { return find_kind(point_.kind)->returns; }
  Result<void> release() override;
  // What was thought dead came back in a new life.
  Result<void> check(const ClusterStatus& status) override;

 private:
  Result<void> arm(uint32_t stage, const std::string& fault);
  Result<Strike> strike_by_itself();
  Result<Strike> strike_from_outside();
  Result<void> act();

  SweepCluster& cluster_;
  PrivateNetwork* network_;
  Point point_;
  std::string node_;
  int stage_process_ = 0, last_stage_process_ = 0, daemon_ = 0;
  uint64_t life_ = 0;
  std::vector<int> all_;  // of the node
  bool cut_ = false;
  std::vector<int> frozen_;
};

}  // namespace troupe::test

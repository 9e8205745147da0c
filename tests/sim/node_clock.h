// A node whose clock leapt. CAF has one clock for all actors of a system; so while something of the
// node runs, the clock shows the node's time, and the timers of its actors are moved along.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/detail/test_actor_clock.hpp>

#include "base/time.h"

namespace troupe::sim {

// Moves the timers of an actor, also into the past: they are due at once then.
void move_timers(caf::detail::test_actor_clock& clock, caf::actor_id actor, Duration by);

// The clock as a node sees it, for as long as this lives. `actor`: whose job runs; 0: nobody's.
// `shown` is then how far the clock is ahead of the simulation's own time.
class NodeClock {
 public:
  NodeClock(caf::detail::test_actor_clock& clock, caf::actor_id actor, Duration ahead,
            Duration& shown);
  ~NodeClock();
  NodeClock(const NodeClock&) = delete;
  NodeClock& operator=(const NodeClock&) = delete;

 private:
  caf::detail::test_actor_clock& clock_;
  const caf::actor_id actor_;
  const Duration ahead_;
  Duration& shown_;
};

}  // namespace troupe::sim

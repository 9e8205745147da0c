// A stage's compute thread in virtual time: jobs in order, a micro-batch takes as long as it is
// told to, and views, crashes and pauses can come in between. As actors/dataplane/stage_compute.cpp
// does, it drops frames of views that were replaced before it came to them.
#pragma once

#include <functional>
#include <memory>

#include "actors/dataplane/stage_compute.h"
#include "tests/sim/witness.h"

namespace troupe::sim {

struct VirtualComputeOptions {
  Incarnation life;  // of the stage
  std::shared_ptr<Witness> witness;
  // Runs it after so long on the stage's node: never if that life of the node ends, later if the
  // node is paused.
  std::function<void(Duration, std::function<void()>)> after;
  std::function<Duration()> load_time, step_time;
  std::function<bool()> hangs;
  // The compute figures, for the node's beats.
  std::function<void(uint32_t stage, std::shared_ptr<ComputeFigures>)> watch;
};

ComputeFactory virtual_compute(VirtualComputeOptions options);

}  // namespace troupe::sim

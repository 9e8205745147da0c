// One run of a sweep: streams run, something is broken when the first of them has got a chosen
// token, and what came is compared.
#pragma once

#include "tests/integration/sweep_streams.h"

namespace troupe::test {

// What is broken, and how it ends.
class Disturbance {
 public:
  virtual ~Disturbance() = default;
  // Who is meant, before the answers begin.
  virtual Result<void> aim(const ClusterStatus& status) = 0;
  // Returns when it has happened.
  virtual Result<Strike> strike() = 0;
  // Every other millisecond from then on, while streams run.
  virtual void tick(const Strike&) {}
  // Whether what was thought dead shall come back only when others have taken its seats.
  virtual bool holds() const { return false; }
  // Wakes what was frozen, heals what was cut. Again is harmless.
  virtual Result<void> release() { return {}; }
  // When all is well again.
  virtual Result<void> check(const ClusterStatus&) { return {}; }
};

// Whether the node came back in another life than this one, and a later stream is equal.
Result<void> check_returned(SweepCluster& cluster, const ClusterStatus& status,
                            const std::string& node, uint64_t old_life);

// After it the cluster is whole again, or gone: then the outcome tells why.
Outcome run_disturbed(SweepCluster& cluster, Disturbance& disturbance, uint64_t position);

}  // namespace troupe::test

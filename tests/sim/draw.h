// What a seed stands for: each part of a run from a stream of its own, so that leaving out a fault
// changes no other part.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/view.h"
#include "tests/sim/client.h"
#include "tests/sim/cluster.h"

namespace troupe::sim {

inline constexpr StandbyPolicy kPolicies[] = {StandbyPolicy::kNone, StandbyPolicy::kKv,
                                              StandbyPolicy::kInput};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t limit) { return random_() % limit; }
  uint64_t between(uint64_t least, uint64_t limit) { return least + below(limit - least); }
  bool chance(uint64_t percent) { return below(100) < percent; }
  template <class T, size_t N>
  const T& of(const T (&all)[N]) {
    return all[below(N)];
  }

 private:
  std::mt19937_64 random_;
};

inline constexpr uint64_t kFaultsMs = 4000;   // faults begin in this time …
inline constexpr Duration kFaultWindow = 7s;  // … and are healed at the end of this
ClusterOptions draw_cluster(uint64_t seed);
std::vector<ClientPlan> draw_clients(uint64_t seed, const ClusterOptions& options,
                                     uint32_t vocabulary);

}  // namespace troupe::sim

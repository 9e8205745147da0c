// What a cluster's processes hold: must be the same before and after a soak.
#pragma once

#include <string>

#include "tests/integration/sweep_cluster.h"

namespace troupe::test {

struct Usage {
  size_t processes = 0, threads = 0, descriptors = 0;
  double anonymous_mib = 0;  // memory of their own: neither files nor what daemons keep for stages
  double shared_mib = 0;     // that
  uint32_t kv_blocks = 0, requests = 0;  // of the batcher; requests: queued and running
};

// To be asked when nothing runs: waits a moment for what has ended to be given back.
Result<Usage> usage_of(SweepCluster& cluster);
std::string to_string(const Usage& usage);
// Empty: nothing has grown. Memory may by a quarter, since allocators keep some, and descriptors by
// as many as there are connections to processes that died a moment ago.
std::string growth(const Usage& before, const Usage& after);

}  // namespace troupe::test

// Disturbances of more than one place or moment: pairs of deaths, deaths while a recovery runs,
// nodes that come back, and a request that kills whoever computes it.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/sweep_network.h"
#include "tests/integration/sweep_run.h"

namespace troupe::test {

struct SceneTraits {
  const char* name;
  const char* what;       // one line for --help
  bool standby, network;  // it needs them
};
const std::vector<SceneTraits>& scenes();

inline constexpr uint32_t kPoisonSeed = 666;

struct Scene {
  std::unique_ptr<Disturbance> disturbance;
  std::string drawn;  // what chance chose, for the report
};
// `name` is one of scenes(), or "poison", for a cluster with faults.poison_seed. Null: no such
// scene. `network` may be null if the scene needs none.
Scene make_scene(const std::string& name, SweepCluster& cluster, PrivateNetwork* network,
                 std::mt19937& random);

}  // namespace troupe::test

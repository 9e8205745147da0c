// Arithmetic for simulation: everything a stage holds is a hash of what it was fed, so one wrong,
// lost or doubled row anywhere shows as another token at the end. Position-addressed and idempotent
// like a real stage, and in blocks like its KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "actors/stage.h"
#include "tests/sim/plant.h"
#include "tests/sim/witness.h"

namespace troupe::sim {

// What an undisturbed pipeline of so many stages generates, and the rows it holds then.
struct UndisturbedRun {
  std::vector<uint32_t> tokens;
  std::vector<std::vector<uint64_t>> rows;  // [stage][position]
};
UndisturbedRun undisturbed_run(const std::vector<uint32_t>& prompt, uint64_t seed, uint32_t count,
                               uint32_t stages, uint32_t vocabulary);

struct FakeOptions {
  Incarnation life;  // of the stage
  std::shared_ptr<Witness> witness;
  Plant plant = Plant::kNone;
  std::function<bool()> fails;  // to load, at this moment
};
ProgramMaker fake_programs(FakeOptions options);

}  // namespace troupe::sim

// Arithmetic for simulation: everything a stage holds is a hash of what it was fed, so one wrong,
// lost or doubled row anywhere shows as another token at the end. Position-addressed and idempotent
// like a real stage.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "actors/stage.h"

namespace troupe::sim {

// The tokens that an undisturbed pipeline of so many stages generates.
std::vector<uint32_t> expected_tokens(std::vector<uint32_t> prompt, uint64_t seed, uint32_t count,
                                      uint32_t stages, uint32_t vocabulary);

// Faults planted on purpose, to see that a simulation finds them.
enum class Plant : uint8_t {
  kNone,
  kBatchVariant,  // a row's result depends on who else is in its micro-batch
  kWrongStandby,  // a standby does not store what it was sent
};
ProgramMaker fake_programs(Plant plant = Plant::kNone);

}  // namespace troupe::sim

// One simulated run, drawn from a seed: a cluster, requests, faults; then the faults stop, and
// every request must have got exactly the tokens of an undisturbed run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/fake_stage.h"

namespace troupe::sim {

struct Fault {
  uint64_t at_ms = 0;
  std::string text;  // "crash 2", "cut 1 800", "throw 0 compute+1", "drain 1", "move 1 2", …
};

struct Outcome {
  std::string failure;  // empty: all is as it must be
  uint64_t tokens = 0, faults_survived = 0, views = 0;
};

// The faults that the seed draws.
std::vector<Fault> draw_faults(uint64_t seed);
// Runs the seed's cluster and requests with these faults.
Outcome run_scenario(uint64_t seed, const std::vector<Fault>& faults, Plant plant = Plant::kNone);
// Leaves out what is not needed for the failure.
std::vector<Fault> shrink(uint64_t seed, std::vector<Fault> faults, Plant plant = Plant::kNone);

std::string to_text(const std::vector<Fault>& faults);  // "120 crash 2; 300 cut 1 800"
std::vector<Fault> from_text(const std::string& text);

}  // namespace troupe::sim

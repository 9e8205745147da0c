// One simulated run, drawn from a seed: a cluster, clients, faults; then the faults stop, and every
// request must end with exactly the tokens of an undisturbed run, and leave nothing behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/plant.h"

namespace troupe::sim {

// Words of a fault's text; nodes count from 0, the head; times in milliseconds:
//   crash NODE DOWN        pause NODE FOR         slow NODE FACTOR FOR
//   cut NODE WHAT FOR      (any of h, w: peer link to head, to worker; i, o: data in, out)
//   leap NODE BY (its clock)   wall NODE BY (its time of day)   sick NODE FOR (loads no stage)
//   throw STAGE POINT+N    hang STAGE             stall FOR (the ledger's storage)
//   away FOR (it answers errors)  doubt FOR (it does what it is told and answers errors)
//   drain NODE             move STAGE NODE        standby 0|1
//   rival (somebody else's swap of the next view wins)
//   leave REQUEST AWAY     cancel REQUEST
//   upon STEP FAULT: from its time on, when a recovery does that (witness.h)
struct Fault {
  uint64_t at_ms = 0;
  std::string text;
};

struct Outcome {
  std::string failure;  // empty: all is as it must be
  uint64_t tokens = 0, views = 0, frames = 0;
  uint64_t replays = 0, refusals = 0;  // orders to send from a journal; frames that stages refused
  uint64_t faults_under_load = 0;      // struck while a request ran …
  uint64_t faults_under_recovery = 0;  // … or while the cluster recovered from another
  double recovered_s = 0;              // virtual time from the end of the faults until all was over
};

struct RunOptions {
  Plant plant = Plant::kNone;
  // At the end no stage may hold a sequence. Off: releases that leave with a replay do not reach
  // the stages it passes by, which keep what ended until the next view or until others need its
  // blocks. To be on when they do.
  bool check_held = false;
};

// The faults that the seed draws.
std::vector<Fault> draw_faults(uint64_t seed);
// Runs the seed's cluster and requests with these faults.
Outcome run_scenario(uint64_t seed, const std::vector<Fault>& faults, RunOptions options = {});
// Leaves out what is not needed for the failure.
std::vector<Fault> shrink(uint64_t seed, std::vector<Fault> faults, RunOptions options = {});

std::string to_text(const std::vector<Fault>& faults);  // "120 crash 2 100; 300 cut 1 hw 800"
std::vector<Fault> from_text(const std::string& text);

}  // namespace troupe::sim

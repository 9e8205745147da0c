// The ledger as heads see it. It and the actor behind it, which holds the storage, outlive heads as
// a disk does: what a head asked for before it died is done. What the storage answers, the witness
// hears.
#pragma once

#include <memory>

#include "actors/messages.h"
#include "tests/sim/plant.h"
#include "tests/sim/witness.h"

namespace troupe::sim {

// What is wrong with its disk: nothing is read or written (full, or gone); or everything is done
// and the answer is an error all the same, so that whoever asked cannot know.
struct LedgerTrouble {
  bool away = false, doubt = false;
};

struct LedgerTapState {
  static inline const char* name = "ledger_tap";
};

LedgerActor::behavior_type ledger_tap(LedgerActor::stateful_pointer<LedgerTapState> self,
                                      LedgerActor storage, std::shared_ptr<Witness> witness,
                                      std::shared_ptr<const LedgerTrouble> trouble, Plant plant);

}  // namespace troupe::sim

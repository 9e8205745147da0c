// The ledger actor: one mailbox in front of the ledger's storage, so that everything durable
// happens in one order.
#pragma once

#include <memory>

#include "actors/ledger_store.h"
#include "actors/messages.h"

namespace troupe {

struct LedgerState {
  static inline const char* name = "ledger";
  std::unique_ptr<LedgerStore> store;
  uint64_t finished = 0;
  bool logs_tokens = true;  // the last ones went in
};

// Finished records kept for late resumes and for people.
inline constexpr uint64_t kFinishedRecordsKept = 10000;

LedgerActor::behavior_type ledger_actor(LedgerActor::stateful_pointer<LedgerState> self,
                                        std::shared_ptr<std::unique_ptr<LedgerStore>> store);

}  // namespace troupe

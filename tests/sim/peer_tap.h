// The peer actor as a head's scheduler sees it: every order passes here, also one to the head's own
// node, and so does every answer. The witness hears what was refused where, and what stages say
// they hold. Bugs of whoever carries out orders are planted here.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "actors/messages.h"
#include "tests/sim/plant.h"
#include "tests/sim/witness.h"

namespace troupe::sim {

struct PeerTapOptions {
  PeerActor peer;
  std::shared_ptr<Witness> witness;
  std::function<uint64_t(const NodeId&)> life_of;  // 0: it is down
  Plant plant = Plant::kNone;
};

struct PeerTapState {
  static inline const char* name = "peer_tap";
  PeerTapOptions options;
  std::map<uint32_t, NodeId> tried;  // by stage: who refused it last
};

PeerActor::behavior_type peer_tap(PeerActor::stateful_pointer<PeerTapState> self,
                                  PeerTapOptions options);

}  // namespace troupe::sim

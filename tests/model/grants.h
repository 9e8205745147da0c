// Reading what the logic keeps to itself. A state can only be told from another by all that decides
// its future, and most of that is private. The names in an explicit instantiation are not checked
// for access (C++20 [temp.spec.general]/6), so no class has to know that it is watched.
#pragma once

#include "actors/logic/batching.h"
#include "actors/logic/recovery.h"
#include "actors/logic/view_fence.h"
#include "actors/logic/watermarks.h"

namespace troupe::model {

template <class Name, auto Member>
struct Grant {
  friend constexpr auto member_of(Name) { return Member; }
};

#define TROUPE_GRANT(Name, Class, member)  \
  struct Name {                            \
    friend constexpr auto member_of(Name); \
  };                                       \
  template struct Grant<Name, &Class::member>

TROUPE_GRANT(ReplicaLast, Replica, last_);
TROUPE_GRANT(ReplicaCommitted, Replica, committed_);
TROUPE_GRANT(ReplicaView, Replica, view_);
TROUPE_GRANT(ReplicaSeatAlive, Replica, seat_alive_);
TROUPE_GRANT(ReplicaNodes, Replica, nodes_);
TROUPE_GRANT(ReplicaStages, Replica, stages_);
TROUPE_GRANT(ReplicaStandbys, Replica, standbys_);
TROUPE_GRANT(ReplicaBarred, Replica, barred_);
TROUPE_GRANT(ReplicaAvoided, Replica, avoided_);
TROUPE_GRANT(ReplicaLeftovers, Replica, leftovers_);
TROUPE_GRANT(ReplicaDead, Replica, dead_);
TROUPE_GRANT(ReplicaStepSince, Replica, step_since_);
TROUPE_GRANT(ReplicaInstallRepeated, Replica, install_repeated_);
TROUPE_GRANT(ReplicaPlacedOnce, Replica, placed_once_);
TROUPE_GRANT(ReplicaStuck, Replica, stuck_);
TROUPE_GRANT(ReplicaHistory, Replica, history_);
TROUPE_GRANT(BatchingSequences, Batching, sequences_);
TROUPE_GRANT(BatchingQueue, Batching, queue_);
TROUPE_GRANT(BatchingRunning, Batching, running_);
TROUPE_GRANT(BatchingLeaving, Batching, leaving_);
TROUPE_GRANT(BatchingInFlight, Batching, in_flight_);
TROUPE_GRANT(BatchingReleased, Batching, released_);
TROUPE_GRANT(BatchingHasView, Batching, has_view_);
TROUPE_GRANT(BatchingLastBatch, Batching, last_batch_);
TROUPE_GRANT(FenceLast, ViewFence, last_);
TROUPE_GRANT(WatermarksDownstream, Watermarks, downstream_);
TROUPE_GRANT(WatermarksTold, Watermarks, told_);

#undef TROUPE_GRANT

// peek<ReplicaStages>(replica)
template <class Name, class Class>
decltype(auto) peek(Class& object) {
  return (object.*member_of(Name{}));
}

}  // namespace troupe::model

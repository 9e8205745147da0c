// The health monitor: hears beats, asks logic/liveness what they mean, and tells each watched
// peer's listener when the verdict changes. Its own lateness is part of the question: an observer
// that was not scheduled may be the sick one.
#pragma once

#include <map>
#include <utility>

#include "actors/logic/liveness.h"
#include "actors/messages.h"

namespace troupe {

struct HealthOptions {
  LivenessOptions liveness;
  Duration tick = 50ms;
};

struct HealthState {
  static inline const char* name = "health_monitor";

  struct Watched {
    NodeId node;
    Incarnation incarnation;
    VerdictListener listener;
    PeerLiveness liveness;
    PeerVerdict::State told = PeerVerdict::State::kAlive;
  };

  HealthMonitor::stateful_pointer<HealthState> self = nullptr;
  HealthOptions options;
  std::map<LinkId, Watched> watched;
  Instant tick_due;

  void tick();
  void beat(const BeatHeard& heard);
};

HealthMonitor::behavior_type health_monitor(HealthMonitor::stateful_pointer<HealthState> self,
                                            HealthOptions options);

}  // namespace troupe

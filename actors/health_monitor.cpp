#include "actors/health_monitor.h"

#include "actors/exceptions.h"

#include <algorithm>

namespace troupe {
namespace {

PeerVerdict::State state_of(const LivenessVerdict& verdict) {
  if (verdict.hung_stage) return PeerVerdict::State::kHung;
  switch (verdict.liveness) {
    case Liveness::kAlive:
      return PeerVerdict::State::kAlive;
    case Liveness::kSuspect:
      return PeerVerdict::State::kSuspect;
    case Liveness::kDead:
      return PeerVerdict::State::kDead;
  }
  return PeerVerdict::State::kAlive;
}

}  // namespace

void HealthState::tick() {
  const Instant now = self->clock().now();
  const Duration late = std::max(Duration{0}, Duration{now - tick_due});
  for (auto& [link, peer] : watched) {
    const LivenessVerdict verdict = peer.liveness.judge(now, late);
    const PeerVerdict::State state = state_of(verdict);
    if (state == peer.told) continue;
    peer.told = state;
    self->send(peer.listener, PeerVerdict{peer.node, peer.incarnation, state, verdict.reason});
  }
  tick_due = now + options.tick;
  self->delayed_send(self, options.tick, Tick{});
}

void HealthState::beat(const BeatHeard& heard) {
  const auto found = watched.find(heard.link);
  if (found == watched.end()) return;  // not introduced yet, or gone
  PeerLiveness& liveness = found->second.liveness;
  liveness.heard(heard.heard, heard.beat.number);
  for (const Progress& progress : heard.beat.progress)
    liveness.progressed(progress.stage, progress.started, progress.finished, heard.heard);
}

HealthMonitor::behavior_type health_monitor(HealthMonitor::stateful_pointer<HealthState> self,
                                            HealthOptions options) {
  HealthState& state = self->state;
  state.self = self;
  state.options = options;
  state.tick_due = self->clock().now() + options.tick;
  self->delayed_send(self, options.tick, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const WatchPeer& watch) {
        state.watched.erase(watch.link);
        state.watched.emplace(
            watch.link,
            HealthState::Watched{watch.node, watch.incarnation, watch.listener,
                                 PeerLiveness{state.options.liveness, state.self->clock().now()}});
      },
      [&state](const UnwatchPeer& unwatch) {
        std::erase_if(state.watched, [&](const auto& entry) {
          return entry.second.node == unwatch.node &&
                 entry.second.incarnation == unwatch.incarnation;
        });
      },
      [&state](const BeatHeard& heard) { state.beat(heard); },
      [&state](const Tick&) { state.tick(); },
  };
}

}  // namespace troupe

// Is a peer alive? Judged from the beats it sends every 25 ms on a thread of their own, and from
// the progress counters of its compute threads that travel with them (a heart that beats over a
// stuck worker is a gray failure).
//
// Silence is judged by phi accrual (Hayashibara, Défago, Yared, Katayama, "The phi accrual failure
// detector", SRDS 2004): from the last intervals between beats, taken as normally distributed, phi
// is -log10 of the chance that a beat is still to come after this much silence; phi 8 means 1 in
// 10^8. Phi alone is too nervous on loaded machines, where a whole process may wait for a core, so
// nobody is suspected before `silence_min` and everybody is dead after `silence_dead`. A judge
// whose own timer was late may be the sick one: it stretches its limits by that lateness.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"

namespace troupe {

enum class Liveness : uint8_t { kAlive, kSuspect, kDead };
const char* to_string(Liveness liveness);

struct PhiOptions {
  Duration beat_interval = 25ms;  // expected, before there are enough samples
  uint32_t samples_max = 200;     // of the sliding window: five seconds of beats
  Duration deviation_min = 5ms;   // a very even past must not make the detector hysterical
};

class PhiDetector {
 public:
  PhiDetector(PhiOptions options, Instant start);
  void heard(Instant now);
  double phi(Instant now) const;  // 0 or more; grows with silence, 300 at most
  Instant last_heard() const { return last_; }

 private:
  PhiOptions options_;
  Instant last_;
  std::deque<double> intervals_;  // seconds
};

struct LivenessOptions {
  PhiOptions phi;
  double phi_suspect = 8;
  Duration silence_min = 250ms;   // no suspicion before
  Duration silence_dead = 650ms;  // death after
  Duration stall_min = 5s;  // a compute thread with work that stands still for longer hangs …
  double stall_steps = 4;   // … unless so many predicted steps take longer still
};

struct LivenessVerdict {
  Liveness liveness = Liveness::kAlive;
  std::string reason;  // empty while alive: "no beat for 412 ms (phi 14.2)"
  std::optional<uint32_t>
      hung_stage;  // dead for this reason: its process may be killed and restarted alone
};

class PeerLiveness {
 public:
  PeerLiveness(LivenessOptions options, Instant start);

  // A beat arrived. Its number grows by one with each beat of this incarnation; one that is not
  // newer is dropped. `now` is when the peer was last known to hear us, too: a peer that beats but
  // hears nothing cannot be told anything, and counts as silent.
  void heard(Instant now, uint64_t beat);
  // What the beat says about a stage's compute thread: micro-batches started and finished since its
  // life began.
  void progressed(uint32_t stage, uint64_t started, uint64_t finished, Instant now,
                  Duration predicted_step = Duration::zero());
  // The stage left this peer.
  void forget_stage(uint32_t stage);
  // `observer_late`: how much later than planned the judge itself was called; lateness up to a beat
  // interval is normal.
  LivenessVerdict judge(Instant now, Duration observer_late) const;

 private:
  struct Progress {
    uint64_t started = 0, finished = 0;
    Instant since;  // unchanged
    Duration predicted_step{};
  };
  LivenessOptions options_;
  PhiDetector detector_;
  std::optional<uint64_t> beat_;
  std::map<uint32_t, Progress> progress_;
};

}  // namespace troupe

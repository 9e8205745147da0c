#include "actors/logic/liveness.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <random>
#include <string>

namespace troupe {
namespace {

const Instant kStart{1h};

BOOST_AUTO_TEST_SUITE(liveness)

BOOST_AUTO_TEST_CASE(phi_is_the_normal_tail_of_the_silence) {
  PhiDetector detector({.beat_interval = 100ms, .samples_max = 100, .deviation_min = 10ms}, kStart);
  Instant now = kStart;
  for (int beat = 0; beat < 50; ++beat) detector.heard(now += 100ms);
  // Intervals are all 100 ms, so the deviation is the minimum, 10 ms; z of 0, 1, 2 and 3
  // deviations, from tables.
  BOOST_TEST(detector.phi(now + 100ms) == -std::log10(0.5), boost::test_tools::tolerance(1e-6));
  BOOST_TEST(detector.phi(now + 110ms) == -std::log10(0.158655),
             boost::test_tools::tolerance(1e-4));
  BOOST_TEST(detector.phi(now + 120ms) == -std::log10(0.0227501),
             boost::test_tools::tolerance(1e-4));
  BOOST_TEST(detector.phi(now + 130ms) == -std::log10(0.0013499),
             boost::test_tools::tolerance(1e-4));
  BOOST_TEST(detector.phi(now) < 1e-9);
  BOOST_TEST(detector.phi(now + 10s) == 300.0);
}

BOOST_AUTO_TEST_CASE(phi_learns_jitter_and_forgets_it) {
  const PhiOptions options{.beat_interval = 25ms, .samples_max = 50, .deviation_min = 1ms};
  PhiDetector even(options, kStart), uneven(options, kStart);
  Instant a = kStart, b = kStart;
  for (int beat = 0; beat < 100; ++beat) {
    even.heard(a += 25ms);
    uneven.heard(b += beat % 2 == 0 ? 5ms : 45ms);
  }
  BOOST_TEST(uneven.phi(b + 60ms) < 2);
  BOOST_TEST(even.phi(a + 60ms) > 100);
  for (int beat = 0; beat < 50; ++beat) uneven.heard(b += 25ms);
  BOOST_TEST(uneven.phi(b + 60ms) > 100);
}

BOOST_AUTO_TEST_CASE(no_false_alarm_on_a_loaded_machine) {
  const uint32_t seed = 20260101;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random(seed);
  PeerLiveness peer({}, kStart);
  Instant now = kStart;
  for (uint64_t beat = 1; beat <= 20'000; ++beat) {
    // One beat in fifty waits up to 375 ms for a core.
    Duration gap = 25ms;
    if (random() % 50 == 0) gap += std::chrono::milliseconds(random() % 225);
    now += gap;
    BOOST_TEST_REQUIRE((peer.judge(now, 0ms).liveness == Liveness::kAlive));
    peer.heard(now, beat);
  }
}

BOOST_AUTO_TEST_CASE(silence_is_first_suspicious_and_then_deadly) {
  PeerLiveness peer({}, kStart);
  Instant now = kStart;
  for (uint64_t beat = 1; beat <= 100; ++beat) peer.heard(now += 25ms, beat);
  BOOST_TEST((peer.judge(now + 250ms, 0ms).liveness == Liveness::kAlive));
  const LivenessVerdict suspect = peer.judge(now + 262ms, 0ms);
  BOOST_TEST((suspect.liveness == Liveness::kSuspect));
  BOOST_TEST(suspect.reason == "no beat for 262 ms (phi 300.0)");
  BOOST_TEST((peer.judge(now + 650ms, 0ms).liveness == Liveness::kSuspect));
  const LivenessVerdict dead = peer.judge(now + 651ms, 0ms);
  BOOST_TEST((dead.liveness == Liveness::kDead));
  BOOST_TEST(dead.reason == "no beat for 651 ms, allowed are 650 ms");
  BOOST_TEST(!dead.hung_stage.has_value());
  peer.heard(now + 652ms, 101);
  BOOST_TEST((peer.judge(now + 653ms, 0ms).liveness == Liveness::kAlive));
}

BOOST_AUTO_TEST_CASE(a_peer_that_never_beats_dies_too) {
  PeerLiveness peer({}, kStart);
  BOOST_TEST((peer.judge(kStart + 651ms, 0ms).liveness == Liveness::kDead));
}

BOOST_AUTO_TEST_CASE(an_old_beat_is_no_sign_of_life) {
  PeerLiveness peer({}, kStart);
  peer.heard(kStart + 25ms, 7);
  peer.heard(kStart + 900ms, 7);
  peer.heard(kStart + 900ms, 6);
  BOOST_TEST((peer.judge(kStart + 1100ms, 0ms).liveness == Liveness::kDead));
  peer.heard(kStart + 900ms, 8);
  peer.heard(kStart + 900ms, 9);  // two at once are one sign of life
  BOOST_TEST((peer.judge(kStart + 1100ms, 0ms).liveness == Liveness::kAlive));
}

BOOST_AUTO_TEST_CASE(a_late_observer_stretches_its_limits) {
  PeerLiveness peer({}, kStart);
  Instant now = kStart;
  for (uint64_t beat = 1; beat <= 100; ++beat) peer.heard(now += 25ms, beat);
  BOOST_TEST((peer.judge(now + 800ms, 25ms).liveness == Liveness::kDead));
  BOOST_TEST((peer.judge(now + 800ms, 600ms).liveness == Liveness::kAlive));
  BOOST_TEST((peer.judge(now + 800ms, 200ms).liveness == Liveness::kSuspect));
}

BOOST_AUTO_TEST_CASE(a_stuck_worker_is_a_hang_though_the_heart_beats) {
  PeerLiveness peer({}, kStart);
  Instant now = kStart;
  uint64_t beat = 0;
  const auto beat_until = [&](Instant end, uint64_t started, uint64_t finished, Duration step) {
    while (now < end) {
      peer.heard(now += 25ms, ++beat);
      peer.progressed(1, started, finished, now, step);
    }
  };
  beat_until(kStart + 20s, 5, 5, 0ms);  // idle is no hang
  BOOST_TEST((peer.judge(now, 0ms).liveness == Liveness::kAlive));
  beat_until(kStart + 25s, 6, 5, 0ms);
  BOOST_TEST((peer.judge(now, 0ms).liveness == Liveness::kAlive));
  beat_until(kStart + 25s + 50ms, 6, 5, 0ms);
  const LivenessVerdict verdict = peer.judge(now, 0ms);
  BOOST_TEST((verdict.liveness == Liveness::kDead));
  BOOST_TEST(verdict.hung_stage.value() == 1U);
  BOOST_TEST(
      verdict.reason ==
      "stage 1 hangs: its compute thread started 6 micro-batches, finished 5 and stands still for "
      "5.0 s, allowed are 5.0 s");
  BOOST_TEST(
      (peer.judge(now, 100ms).liveness == Liveness::kAlive));  // the judge may be the sick one
  peer.forget_stage(1);
  BOOST_TEST((peer.judge(now, 0ms).liveness == Liveness::kAlive));
}

BOOST_AUTO_TEST_CASE(a_worker_that_finishes_something_gets_its_time_anew) {
  PeerLiveness peer({}, kStart);
  uint64_t beat = 0;
  peer.progressed(1, 7, 5, kStart);
  peer.heard(kStart + 4s, ++beat);
  peer.progressed(1, 7, 6, kStart + 4s);  // it has started nothing further
  peer.heard(kStart + 8s, ++beat);
  BOOST_TEST((peer.judge(kStart + 8s, 0ms).liveness == Liveness::kAlive));
  peer.heard(kStart + 9s + 1ms, ++beat);
  BOOST_TEST((peer.judge(kStart + 9s + 1ms, 0ms).liveness == Liveness::kDead));
}

BOOST_AUTO_TEST_CASE(silence_that_its_past_explains_is_not_suspicious) {
  // Beats that come every 40 ms or every 500 ms, by turns: half a second means nothing.
  PeerLiveness peer({}, kStart);
  Instant now = kStart;
  for (uint64_t beat = 1; beat <= 40; ++beat) peer.heard(now += beat % 2 == 0 ? 500ms : 40ms, beat);
  BOOST_TEST((peer.judge(now + 500ms, 0ms).liveness == Liveness::kAlive));
  BOOST_TEST((peer.judge(now + 651ms, 0ms).liveness == Liveness::kDead));
}

BOOST_AUTO_TEST_CASE(every_judgement_has_a_name) {
  BOOST_TEST(to_string(Liveness::kAlive) == std::string("alive"));
  BOOST_TEST(to_string(Liveness::kSuspect) == std::string("suspect"));
  BOOST_TEST(to_string(Liveness::kDead) == std::string("dead"));
  BOOST_TEST(to_string(static_cast<Liveness>(3)) == std::string("unknown"));
}

BOOST_AUTO_TEST_CASE(long_steps_are_given_four_times_their_time) {
  PeerLiveness peer({}, kStart);
  peer.progressed(0, 1, 0, kStart, 3s);
  peer.heard(kStart + 12s, 1);
  BOOST_TEST((peer.judge(kStart + 12s, 0ms).liveness == Liveness::kAlive));
  BOOST_TEST((peer.judge(kStart + 12s + 1ms, 0ms).liveness == Liveness::kDead));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

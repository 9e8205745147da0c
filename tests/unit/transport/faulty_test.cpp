// Faults happen, at their odds, repeatably; without odds nothing happens.
#include "transport/faulty.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/unit/transport/events.h"
#include "tests/unit/transport/frames.h"
#include "transport/loopback.h"

namespace troupe {
namespace {

using test::RecordedEvents;

struct World {
  explicit World(uint64_t seed, FaultOdds odds = {})
      : a(events_a, seed, odds, [&](TransportEvents& events) { return hub.attach(events); }),
        b(events_b, seed + 1, odds, [&](TransportEvents& events) { return hub.attach(events); }),
        to_b(a.connect(b.address()).value()) {}
  ~World() { events_b.release_frames(); }

  void send(uint64_t number) {
    Frame frame = test::activations(number, 64);
    BOOST_REQUIRE((a.send(to_b, frame) == SendOutcome::kAccepted));
  }
  // One millisecond of network.
  void step() {
    now += 1ms;
    a.pump(now);
    b.pump(now);
    hub.pump();
  }
  void run_dry() {
    step();
    for (int steps = 0; a.next_due(); step())
      BOOST_REQUIRE_MESSAGE(++steps < 20000, "held frames never leave");
  }
  std::vector<uint64_t> numbers() const {
    std::vector<uint64_t> out;
    for (const Frame& frame : events_b.frames) out.push_back(frame.header.edge_sequence);
    return out;
  }

  LoopbackHub hub{LoopbackPump::kByHand};
  RecordedEvents events_a, events_b;
  FaultyTransport a, b;
  ConnectionId to_b;
  Instant now{};
};

std::vector<uint64_t> run(uint64_t seed, FaultOdds odds, uint64_t frames = 150) {
  World world(seed, odds);
  for (uint64_t i = 1; i <= frames; ++i) {
    world.send(i);
    world.step();
  }
  world.run_dry();
  return world.numbers();
}

BOOST_AUTO_TEST_SUITE(faulty)

BOOST_AUTO_TEST_CASE(passes_everything_on_without_odds) {
  const std::vector<uint64_t> got = run(1, {});
  BOOST_REQUIRE(got.size() == 150U);
  for (uint64_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i] == i + 1);
}

BOOST_AUTO_TEST_CASE(loses_about_as_many_as_asked_and_keeps_the_order) {
  const std::vector<uint64_t> got = run(2, {.lose = 0.3});
  // 150 draws of 0.7: mean 105, standard deviation 5.6; seeded, so this never flips.
  BOOST_TEST((got.size() > 80 && got.size() < 130));
  BOOST_TEST(std::is_sorted(got.begin(), got.end()));
}

BOOST_AUTO_TEST_CASE(repeats_frames) {
  const std::vector<uint64_t> got = run(3, {.repeat = 0.3});
  BOOST_TEST(got.size() > 150U);
  BOOST_TEST((std::set<uint64_t>(got.begin(), got.end()).size() == 150U));
}

BOOST_AUTO_TEST_CASE(delays_without_disorder) {
  World world(4, {.delay = 1.0, .delay_max = 50ms});
  for (uint64_t i = 1; i <= 20; ++i) world.send(i);
  world.step();
  BOOST_TEST(world.numbers().size() < 20U);
  BOOST_TEST(world.a.next_due().has_value());
  world.run_dry();
  const std::vector<uint64_t> got = world.numbers();
  BOOST_TEST(got.size() == 20U);
  BOOST_TEST(std::is_sorted(got.begin(), got.end()));
}

BOOST_AUTO_TEST_CASE(reorders_without_loss) {
  const std::vector<uint64_t> got = run(5, {.reorder = 0.5, .delay_max = 20ms});
  BOOST_TEST(got.size() == 150U);
  BOOST_TEST(!std::is_sorted(got.begin(), got.end()));
}

BOOST_AUTO_TEST_CASE(a_damaged_frame_becomes_garbage) {
  World world(6, {.corrupt = 1.0});
  for (uint64_t i = 1; i <= 50; ++i) world.send(i);
  world.run_dry();
  BOOST_TEST(world.events_b.frames.empty());
  BOOST_REQUIRE(world.events_b.garbage.size() == 50U);
  for (const Error& what : world.events_b.garbage)
    BOOST_TEST((what.code == ErrorCode::kInvalidFrame));
}

BOOST_AUTO_TEST_CASE(a_cut_swallows_one_direction_until_it_heals) {
  World world(7);
  const ConnectionId to_a = world.b.connect(world.a.address()).value();
  world.a.cut_outgoing(true);
  world.send(1);
  Frame back = test::activations(9, 64);
  BOOST_REQUIRE((world.b.send(to_a, back) == SendOutcome::kAccepted));
  world.run_dry();
  BOOST_TEST(world.events_b.frames.empty());
  BOOST_TEST(world.events_a.frames.size() == 1U);
  world.a.cut_outgoing(false);
  world.b.cut_incoming(true);
  world.send(2);
  world.run_dry();
  BOOST_TEST(world.events_b.frames.empty());
  world.b.cut_incoming(false);
  world.send(3);
  world.run_dry();
  BOOST_TEST((world.numbers() == std::vector<uint64_t>{3}));
  BOOST_TEST(world.events_a.lost.empty());
  world.events_a.release_frames();
}

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_run_and_another_one_another) {
  const FaultOdds odds{.lose = 0.1, .repeat = 0.1, .corrupt = 0.1, .delay = 0.3, .reorder = 0.2};
  BOOST_TEST((run(8, odds) == run(8, odds)));
  BOOST_TEST((run(8, odds) != run(9, odds)));
}

BOOST_AUTO_TEST_CASE(holds_at_most_a_window_and_says_when_to_go_on) {
  World world(10, {.delay = 1.0, .delay_max = 10s});
  Frame frame;
  uint64_t accepted = 0;
  while (accepted <= kWindow) {
    frame = test::activations(accepted + 1, 64);
    if (world.a.send(world.to_b, frame) == SendOutcome::kNoCredit) break;
    ++accepted;
  }
  BOOST_TEST(accepted == kWindow);
  world.now += 11s;
  world.step();
  BOOST_TEST(!world.events_a.credits.empty());
  world.run_dry();
  BOOST_TEST(world.events_b.frames.size() == kWindow);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(loopback_by_hand)

BOOST_AUTO_TEST_CASE(delivers_only_when_pumped_and_as_many_as_asked) {
  LoopbackHub hub(LoopbackPump::kByHand);
  RecordedEvents events_a, events_b;
  const auto a = hub.attach(events_a), b = hub.attach(events_b);
  const ConnectionId to_b = a->connect(b->address()).value();
  for (uint64_t i = 1; i <= 3; ++i) {
    Frame frame = test::activations(i, 64);
    BOOST_REQUIRE((a->send(to_b, frame) == SendOutcome::kAccepted));
  }
  BOOST_TEST(events_b.frames.empty());
  BOOST_TEST(hub.pump(2) == 2U);
  BOOST_TEST(events_b.frames.size() == 2U);
  BOOST_TEST(hub.pump() == 1U);
  BOOST_TEST(hub.pump() == 0U);
}

BOOST_AUTO_TEST_CASE(a_close_drops_what_is_queued) {
  LoopbackHub hub(LoopbackPump::kByHand);
  RecordedEvents events_a, events_b;
  const auto a = hub.attach(events_a), b = hub.attach(events_b);
  const ConnectionId to_b = a->connect(b->address()).value();
  Frame frame = test::activations(1, 64);
  BOOST_REQUIRE((a->send(to_b, frame) == SendOutcome::kAccepted));
  a->close(to_b);
  BOOST_TEST(hub.pump() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

#include "actors/health_monitor.h"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <boost/test/unit_test.hpp>

#include "tests/actors/world.h"

namespace troupe::test {
namespace {

struct HeardState {
  std::shared_ptr<std::vector<PeerVerdict>> heard;
};

VerdictListener::behavior_type listener(VerdictListener::stateful_pointer<HeardState> self,
                                        std::shared_ptr<std::vector<PeerVerdict>> heard) {
  self->state.heard = std::move(heard);
  return {[self](const PeerVerdict& verdict) { self->state.heard->push_back(verdict); }};
}

struct Fixture : Stagehand {
  Fixture() : Stagehand(1) {
    monitor = owned(system().spawn(health_monitor, HealthOptions{}));
    caf::anon_send(monitor, WatchPeer{"node-2", Incarnation{7}, LinkId{1},
                                      owned(system().spawn(listener, heard))});
    settle();
  }
  ~Fixture() override {
    monitor = nullptr;
    end_all();
  }
  void beat(std::vector<Progress> progress = {}) {
    caf::anon_send(monitor, BeatHeard{LinkId{1}, Beat{++number, std::move(progress)}, now()});
    settle();
  }
  // Beats every 25 ms for so long.
  void beats(Duration duration) {
    for (Duration passed{0}; passed < duration; passed += 25ms) {
      beat();
      advance(25ms);
    }
  }
  HealthMonitor monitor;
  uint64_t number = 0;
  std::shared_ptr<std::vector<PeerVerdict>> heard = std::make_shared<std::vector<PeerVerdict>>();
};

}  // namespace

BOOST_AUTO_TEST_SUITE(actors_health_monitor)

BOOST_FIXTURE_TEST_CASE(a_peer_that_beats_is_never_suspected, Fixture) {
  beats(20s);
  BOOST_TEST(heard->empty());
}

BOOST_FIXTURE_TEST_CASE(a_silent_peer_is_suspected_then_dead_each_told_once, Fixture) {
  beats(2s);
  const Instant fell_silent = now();
  while (heard->empty() && now() - fell_silent < 5s) advance(10ms);
  BOOST_REQUIRE_EQUAL(heard->size(), 1U);
  BOOST_TEST((heard->at(0).state == PeerVerdict::State::kSuspect));
  BOOST_TEST(to_seconds(now() - fell_silent) <= 0.5);
  while (heard->size() < 2 && now() - fell_silent < 5s) advance(10ms);
  BOOST_REQUIRE_EQUAL(heard->size(), 2U);
  BOOST_TEST((heard->at(1).state == PeerVerdict::State::kDead));
  BOOST_TEST(to_seconds(now() - fell_silent) <= 1.2);
  BOOST_TEST(heard->at(1).why.find("beat") != std::string::npos);
  advance(5s);
  BOOST_TEST(heard->size() == 2U);
}

BOOST_FIXTURE_TEST_CASE(a_suspect_that_beats_again_is_alive_again, Fixture) {
  beats(2s);
  advance(500ms);
  BOOST_REQUIRE_EQUAL(heard->size(), 1U);
  beats(200ms);
  BOOST_REQUIRE_EQUAL(heard->size(), 2U);
  BOOST_TEST((heard->at(1).state == PeerVerdict::State::kAlive));
}

BOOST_FIXTURE_TEST_CASE(a_busy_compute_thread_that_stands_still_is_hung_although_the_peer_beats,
                        Fixture) {
  for (Duration passed{0}; passed < 8s; passed += 25ms) {
    beat({{0, 5, 4}});
    advance(25ms);
  }
  BOOST_REQUIRE(!heard->empty());
  BOOST_TEST((heard->back().state == PeerVerdict::State::kHung));
}

BOOST_FIXTURE_TEST_CASE(an_idle_compute_thread_may_stand_still_for_ever, Fixture) {
  for (Duration passed{0}; passed < 20s; passed += 25ms) {
    beat({{0, 5, 5}});
    advance(25ms);
  }
  BOOST_TEST(heard->empty());
}

BOOST_FIXTURE_TEST_CASE(an_unwatched_peer_may_fall_silent, Fixture) {
  beats(1s);
  caf::anon_send(monitor, UnwatchPeer{"node-2", Incarnation{7}});
  advance(5s);
  BOOST_TEST(heard->empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

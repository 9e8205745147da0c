// Standbys of a replica, scene by scene: "assign" of a standby reads like any other.
#include <boost/test/unit_test.hpp>

#include "tests/unit/logic/recovery_scene.h"

namespace troupe {
namespace {

using test::Scene;
using test::text;

Scene with_standbys(uint32_t nodes) {
  ReplicaSpec spec;
  spec.standby = StandbyPolicy::kKv;
  Scene scene(2, 0, spec);
  for (uint32_t i = 0; i < nodes; ++i) scene.join(std::string(1, static_cast<char>('a' + i)));
  scene.ready(0, "a", 10);
  scene.ready(1, "b", 11);
  scene.committed(1);
  return scene;
}

std::string standbys(const Scene& scene) {
  std::string all;
  for (const Standby& standby : scene.replica.view().standbys)
    all +=
        fmt::format("{}:{}.{} ", standby.stage, standby.seat.node, standby.seat.incarnation.value);
  return all;
}

BOOST_AUTO_TEST_SUITE(recovery_standby)

BOOST_AUTO_TEST_CASE(they_come_one_at_a_time_when_it_serves_and_share_one_view) {
  Scene scene = with_standbys(3);
  BOOST_TEST(scene.installed(1, {0, 1}) == "serve 1: a.10 b.11; assign 0 to c.1");
  BOOST_TEST(scene.ready(0, "c", 20) == "assign 1 to c.1");
  BOOST_TEST(scene.ready(1, "c", 21) ==
             "pause (view 1 gives way to a new standby); propose 2: a.10 b.11");
  BOOST_TEST(standbys(scene) == "0:c.20 1:c.21 ");
  scene.committed(2);
  BOOST_TEST(scene.installed(2, {0, 1}) == "serve 2: a.10 b.11");
  BOOST_TEST(scene.last_event() ==
             "view 2 serves: c stands by for stage 0, c stands by for stage 1");
  BOOST_TEST(scene.replica.follows(0));
  BOOST_TEST(text(scene.replica.on_stage_heard(0, "c")) == "");
  BOOST_TEST(text(scene.replica.on_stage_heard(0, "b")) == "stop 0 on b");
}

BOOST_AUTO_TEST_CASE(a_lost_seat_falls_to_its_standby_without_loading) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  BOOST_TEST(scene.lose("b") == "pause (b was lost: connection reset); propose 3: a.10 c.21");
  scene.committed(3);
  // Another one is looked for; the node that took the seat is no place for it.
  BOOST_TEST(scene.installed(3, {0, 1}) == "serve 3: a.10 c.21; assign 1 to a.1");
  BOOST_TEST(standbys(scene) == "0:c.20 ");
}

BOOST_AUTO_TEST_CASE(a_stage_that_is_restarted_follows_who_took_its_seat) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  BOOST_TEST(scene.lost(1, "b", 11, true) ==
             "pause (stage 1 on b was lost: killed by signal 9); propose 3: a.10 c.21");
  scene.committed(3);
  BOOST_TEST(scene.installed(3, {0, 1}) == "serve 3: a.10 c.21");
  BOOST_TEST(scene.ready(1, "b", 31) ==
             "pause (view 3 gives way to a new standby); propose 4: a.10 c.21");
  BOOST_TEST(standbys(scene) == "0:c.20 1:b.31 ");
}

BOOST_AUTO_TEST_CASE(one_that_is_not_in_the_view_yet_takes_no_seat) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);  // the next one loads: there is no view with it yet
  BOOST_TEST(!scene.replica.follows(0));
  const std::string actions = scene.lost(0, "a", 10, false);
  BOOST_TEST(actions.find("propose") == std::string::npos, actions);
}

BOOST_AUTO_TEST_CASE(who_computed_something_wrong_is_replaced) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  const auto wrong = [&](uint32_t stage, uint64_t life) {
    return text(scene.replica.on_wrong(stage, Incarnation{life}, "7 is not 8", scene.now));
  };
  BOOST_TEST(wrong(5, 10) == "");
  BOOST_TEST(wrong(0, 99) == "");  // nobody of now
  // The standby of stage 0: another one comes.
  BOOST_TEST(wrong(0, 20) == "stop 0 on c; assign 0 to c.1");
  BOOST_TEST(scene.last_event() ==
             "the standby of stage 0 on c computed something wrong: 7 is not 8");
  BOOST_TEST(scene.replica.standby_comes(0));
  // The seat of stage 1: its standby takes it.
  BOOST_TEST(wrong(1, 11) ==
             "pause (stage 1 on b computed something wrong: 7 is not 8); stop 1 on b; propose 3: "
             "a.10 c.21");
  scene.committed(3);
  scene.installed(3, {0, 1});
  BOOST_TEST(scene.replica.faults() == 1U);
}

BOOST_AUTO_TEST_CASE(how_they_follow_may_change_with_a_new_view) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  BOOST_TEST((scene.replica.view().standbys[0].policy == StandbyPolicy::kKv));
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kInput, scene.now)) ==
             "pause (view 2 gives way to a new standby); propose 3: a.10 b.11");
  BOOST_TEST((scene.replica.view().standbys[1].policy == StandbyPolicy::kInput));
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kInput, scene.now)) == "");
}

BOOST_AUTO_TEST_CASE(a_checker_that_is_gone_leaves_the_view_at_once) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  scene.replica.on_policy(StandbyPolicy::kInput, scene.now);
  scene.committed(3);
  scene.installed(3, {0, 1});
  // Of two that go together, and with a planned move under way, which a loss undoes.
  BOOST_TEST(scene.move(1, "a") == "assign 1 to a.1");
  BOOST_TEST(scene.lose("c") ==
             "pause (view 3 gives way: a standby that checked is gone); stop 1 on a; propose 4: "
             "a.10 b.11");
  BOOST_TEST(standbys(scene) == "");
  scene.committed(4);
  scene.installed(4, {0, 1});
}

// News of its end was overtaken: the new life checks nothing that the old one was sent.
BOOST_AUTO_TEST_CASE(a_checker_in_another_life_is_not_the_one_the_view_names) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  scene.replica.on_policy(StandbyPolicy::kInput, scene.now);
  scene.committed(3);
  scene.installed(3, {0, 1});
  BOOST_TEST(scene.ready(1, "c", 31) ==
             "pause (view 3 gives way: a standby that checked is gone); propose 4: a.10 b.11");
  BOOST_TEST(standbys(scene) == "0:c.20 1:c.31 ");
}

BOOST_AUTO_TEST_CASE(without_the_policy_nobody_is_waited_for_any_more) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  scene.replica.on_policy(StandbyPolicy::kInput, scene.now);
  scene.committed(3);
  scene.installed(3, {0, 1});
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kNone, scene.now)) ==
             "stop 0 on c; stop 1 on c; pause (view 3 gives way: a standby that checked is gone); "
             "propose 4: a.10 b.11");
}

BOOST_AUTO_TEST_CASE(a_stage_that_nobody_can_follow_says_why) {
  Scene scene = with_standbys(2);
  scene.installed(1, {0, 1});
  BOOST_TEST(!scene.replica.standby_comes(7));
  BOOST_TEST(scene.replica.standby_trouble(7).empty());
  BOOST_TEST(scene.replica.standby_trouble(0).empty());  // b has room for it
  scene.lose("b");
  scene.ready(1, "a", 31);
  scene.committed(2);
  scene.installed(2, {0, 1});
  BOOST_TEST(scene.replica.standby_trouble(0) == "no other node has room for a standby");
  BOOST_TEST(scene.last_event() == "stage 1 is unprotected: no other node has room for a standby");
  // Said once; and a node that comes ends it.
  const size_t said = scene.replica.history().size();
  scene.now += 200ms;
  scene.replica.on_tick(scene.now);
  BOOST_TEST(scene.replica.history().size() == said);
  scene.join("b", 2);
  scene.now += 10s;
  scene.replica.on_tick(scene.now);
  BOOST_TEST(scene.replica.standby_trouble(0).empty());
  scene.replica.on_policy(StandbyPolicy::kNone, scene.now);
  BOOST_TEST(scene.replica.standby_trouble(1).empty());
}

BOOST_AUTO_TEST_CASE(one_that_comes_up_as_another_is_dropped) {
  for (const bool layers : {true, false}) {
    Scene scene = with_standbys(3);
    scene.installed(1, {0, 1});
    Seat seat{.node = "c",
              .node_incarnation = Incarnation{1},
              .incarnation = Incarnation{layers ? 20U : 0U},
              .layers = {0, layers ? 9U : 10U},
              .data_address = {}};
    // The next stage's turn comes; its own, after a while.
    BOOST_TEST(text(scene.replica.on_stage_ready(0, seat, scene.now)) ==
               "stop 0 on c; assign 1 to c.1");
    BOOST_TEST(!scene.replica.standby_comes(0));
    BOOST_TEST(scene.after(5s) == "");  // one at a time
    BOOST_TEST(scene.ready(1, "c", 21) == "assign 0 to c.1");
  }
}

BOOST_AUTO_TEST_CASE(news_of_an_earlier_life_of_one_change_nothing) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.lost(0, "c", 19, true);  // while it loaded
  BOOST_TEST(scene.ready(0, "c", 20) == "assign 1 to c.1");
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  BOOST_TEST(!scene.replica.standby_comes(0));  // it is here
  BOOST_TEST(scene.lost(0, "c", 18, false) == "");
  BOOST_TEST(scene.replica.follows(0));
  scene.replica.on_policy(StandbyPolicy::kNone, scene.now);
  BOOST_TEST(!scene.replica.standby_comes(0));  // and now nobody will
}

BOOST_AUTO_TEST_CASE(only_a_node_with_room_takes_one) {
  ReplicaSpec spec;
  spec.standby = StandbyPolicy::kKv;
  Scene scene(1, 0, spec);
  scene.join("a");
  scene.join("b", 1, 9 * test::kMiB);  // a stage needs 10
  scene.join("c");
  scene.ready(0, "a", 10);
  scene.committed(1);
  BOOST_TEST(scene.installed(1, {0}) == "serve 1: a.10; assign 0 to c.1");
}

// The old seat of a move that never served: it was taken back, died in the view that was to serve,
// and is started again as the standby of who took its seat then.
BOOST_AUTO_TEST_CASE(an_old_seat_that_became_a_standby_is_not_stopped) {
  ReplicaSpec spec;
  spec.standby = StandbyPolicy::kKv;
  Scene scene(1, 0, spec);
  for (const char* node : {"a", "b", "c"}) scene.join(node);
  scene.ready(0, "a", 10);
  scene.committed(1);
  BOOST_TEST(scene.installed(1, {0}) == "serve 1: a.10; assign 0 to b.1");
  BOOST_TEST(scene.move(0, "c") == "assign 0 to c.1");
  BOOST_TEST(scene.ready(0, "c", 12) ==
             "pause (view 1 gives way to a planned move); propose 2: c.12");
  BOOST_TEST(scene.ready(0, "b", 11) == "");
  BOOST_TEST(scene.lost(0, "c", 12, false) == "stop 0 on c; assign 0 to a.1");
  BOOST_TEST(scene.ready(0, "a", 10) == "propose 3: a.10");
  BOOST_TEST(scene.lost(0, "a", 10, true) == "propose 4: b.11");
  BOOST_TEST(scene.ready(0, "a", 20) == "");
  scene.committed(4);
  // Nothing is stopped on "a"; it follows from the next view on.
  BOOST_TEST(scene.installed(4, {0}) ==
             "serve 4: b.11; pause (view 4 gives way to a new standby); propose 5: b.11");
  BOOST_TEST(standbys(scene) == "0:a.20 ");
}

BOOST_AUTO_TEST_CASE(without_another_node_there_is_none) {
  ReplicaSpec spec;
  spec.standby = StandbyPolicy::kKv;
  Scene scene(1, 0, spec);
  scene.join("a");
  scene.ready(0, "a", 10);
  scene.committed(1);
  BOOST_TEST(scene.installed(1, {0}) == "serve 1: a.10");
}

BOOST_AUTO_TEST_CASE(the_policy_may_change_while_it_serves) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kNone, scene.now)) ==
             "stop 0 on c; stop 1 on c");
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kNone, scene.now)) == "");
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kKv, scene.now)) == "assign 0 to c.1");
}

BOOST_AUTO_TEST_CASE(a_drained_node_gives_its_stage_to_the_standby) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  scene.ready(0, "c", 20);
  scene.ready(1, "c", 21);
  scene.committed(2);
  scene.installed(2, {0, 1});
  BOOST_TEST(scene.drain("b") ==
             "pause (view 2 gives way to a planned move); propose 3: a.10 c.21");
}

BOOST_AUTO_TEST_CASE(a_standby_that_cannot_load_is_tried_elsewhere_after_a_while) {
  Scene scene = with_standbys(3);
  scene.installed(1, {0, 1});
  BOOST_TEST(scene.fails_to_load(0, "c") == "stop 0 on c; assign 1 to c.1");
  // Late news of an attempt that was given up: the policy changed, and changed again.
  const uint64_t given_up = test::attempts_told[{1, "c"}];
  scene.replica.on_policy(StandbyPolicy::kNone, scene.now);
  BOOST_TEST(text(scene.replica.on_policy(StandbyPolicy::kKv, scene.now)) == "assign 0 to b.1");
  BOOST_TEST(text(scene.replica.on_assign_failed(given_up, {ErrorCode::kInternal, "it was stopped"},
                                                 scene.now)) == "");
  BOOST_TEST(scene.replica.standby_comes(0));
  BOOST_TEST(scene.replica.faults() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

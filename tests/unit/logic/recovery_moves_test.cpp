// Planned moves: an operator names a stage and a node, or drains a node. The old seat serves until
// its successor is ready, and whatever goes wrong on the way leaves the replica where it was.
#include <boost/test/unit_test.hpp>

#include "tests/unit/logic/recovery_scene.h"

namespace troupe::test {
namespace {

// Three stages of 10 MiB on a, b and c, and a spare node d.
struct Spared : Scene {
  explicit Spared(uint64_t memory = 100 * kMiB) {
    serve();
    join("d", 1, memory);
  }
};

BOOST_AUTO_TEST_SUITE(recovery_moves)

BOOST_AUTO_TEST_CASE(the_old_seat_serves_until_the_successor_is_ready) {
  Spared scene;
  BOOST_TEST(scene.move(1, "d") == "assign 1 to d.1");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.replica.moving_to(1) == "d");
  BOOST_TEST(scene.replica.moving_to(0) == "");
  BOOST_TEST(scene.replica.moving_to(7) == "");
  BOOST_TEST(scene.after(10s) == "");
  BOOST_TEST(scene.move(1, "d") == "");  // asked again: it is on its way
  BOOST_TEST(scene.ready(1, "d", 21) ==
             "pause (view 1 gives way to a planned move); propose 2: a.10 d.21 c.12");
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "stop 1 on b; serve 2: a.10 d.21 c.12");
  BOOST_TEST(scene.last_event() == "view 2 serves: stage 1 moved from b to d (as asked)");
  BOOST_TEST(scene.replica.faults() == 0U);
  BOOST_TEST(scene.replica.moving_to(1) == "");
  BOOST_TEST(scene.replica.move_trouble(1) == "");
}

BOOST_AUTO_TEST_CASE(a_stage_may_join_another_on_its_node_and_move_back) {
  Spared scene;
  BOOST_TEST(scene.move(1, "a") == "assign 1 to a.1");
  scene.ready(1, "a", 21);
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "stop 1 on b; serve 2: a.10 a.21 c.12");
  BOOST_TEST(scene.move(1, "b") == "assign 1 to b.1");
  BOOST_TEST(scene.ready(1, "b", 31) ==
             "pause (view 2 gives way to a planned move); propose 3: a.10 b.31 c.12");
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_refused_and_changes_nothing) {
  Spared scene(9 * kMiB);
  BOOST_TEST(scene.move(3, "a") == "refused (not found: no stage 3: demo has stages 0 to 2)");
  BOOST_TEST(scene.move(1, "x") ==
             "refused (not found: no node x takes stages: there are a, b, c, d)");
  BOOST_TEST(scene.move(1, "") ==
             "refused (not found: no node  takes stages: there are a, b, c, d)");
  BOOST_TEST(scene.move(1, "b") == "refused (already exists: stage 1 is on b already)");
  BOOST_TEST(scene.move(1, "d") ==
             "refused (resource exhausted: d has no room: stage 1 needs 10.0 MiB, 9.0 MiB are free "
             "there)");
  scene.drain("d");
  BOOST_TEST(scene.move(1, "d") ==
             "refused (invalid argument: d is draining and takes no stages: undrain it first, or "
             "name another node)");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.replica.moving_to(1) == "");
  BOOST_TEST(scene.after(1h) == "");
}

BOOST_AUTO_TEST_CASE(a_node_at_its_limit_of_stages_has_no_room) {
  Scene scene;
  scene.serve();
  scene.nodes[2].stages_max = 1;
  scene.replica.on_nodes(scene.nodes, "limit", scene.now);
  BOOST_TEST(scene.move(1, "c") ==
             "refused (resource exhausted: c has no room: it holds 1 of at most 1 stages)");
}

BOOST_AUTO_TEST_CASE(a_replica_that_does_not_serve_moves_nothing) {
  Scene scene;
  scene.join("a");
  BOOST_TEST(scene.move(1, "a") ==
             "refused (unavailable: demo is waiting: stages are moved while it serves; try again "
             "then)");
}

BOOST_AUTO_TEST_CASE(a_move_to_nowhere_is_refused) {
  Spared scene;
  BOOST_TEST(scene.move(1, "").starts_with("refused (not found: no node  takes stages"));
}

BOOST_AUTO_TEST_CASE(the_old_seat_may_say_again_that_it_is_ready) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.ready(1, "b", 11) == "");
  BOOST_TEST(scene.replica.moving_to(1) == "d");
}

BOOST_AUTO_TEST_CASE(a_drained_stage_that_waits_for_its_next_attempt_says_what_went_wrong) {
  Scene scene(1);
  scene.join("a");
  scene.ready(0, "a", 10);
  scene.committed(1);
  scene.installed(1, {0});
  scene.join("b");
  BOOST_TEST(scene.drain("a") == "assign 0 to b.1");
  BOOST_TEST(scene.lost(0, "b", 0, false) == "stop 0 on b");
  BOOST_TEST(scene.replica.move_trouble(0) == "stage 0 on b was lost: killed by signal 9");
  BOOST_TEST(scene.after(1s) == "assign 0 to b.1");
}

BOOST_AUTO_TEST_CASE(moves_are_made_one_at_a_time) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.move(2, "d") ==
             "refused (conflict: stage 1 is moving from b to d: moves are made one at a time; wait "
             "until it is there)");
  BOOST_TEST(scene.move(1, "a").starts_with("refused (conflict: stage 1 is moving from b to d"));
  BOOST_TEST(scene.move(1, "b").starts_with("refused (conflict: stage 1 is moving from b to d"));
}

BOOST_AUTO_TEST_CASE(a_target_that_cannot_load_it_undoes_the_move_and_may_be_asked_again) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.fails_to_load(1, "d") == "stop 1 on d");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.replica.moving_to(1) == "");
  BOOST_TEST(scene.replica.move_trouble(1) == "d could not load stage 1: input/output: disk");
  BOOST_TEST(scene.replica.faults() == 0U);
  BOOST_TEST(scene.after(1h) == "");
  BOOST_TEST(scene.move(1, "d") == "assign 1 to d.1");
  BOOST_TEST(scene.replica.move_trouble(1) == "");
}

BOOST_AUTO_TEST_CASE(a_target_that_does_not_get_ready_undoes_the_move) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.after(120s) == "");
  BOOST_TEST(scene.after(1ms) == "stop 1 on d");
  BOOST_TEST(scene.replica.move_trouble(1) == "stage 1 on d was not ready within 120 s");
  BOOST_TEST(scene.ready(1, "d", 21) == "stop 1 on d");  // too late
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
}

BOOST_AUTO_TEST_CASE(a_target_that_is_lost_undoes_the_move) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.lose("d") == "");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.replica.move_trouble(1) == "d was lost: connection reset");
  BOOST_TEST(scene.after(1h) == "");
}

BOOST_AUTO_TEST_CASE(a_loss_elsewhere_undoes_the_move_of_a_successor_that_still_loads) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.lost(2, "c", 12, true) ==
             "pause (stage 2 on c was lost: killed by signal 9); stop 1 on d");
  BOOST_TEST(scene.replica.move_trouble(1) == "a loss went first while it was loading on d");
  BOOST_TEST(scene.move(1, "d") ==
             "refused (unavailable: demo is loading: stages are moved while it serves; try again "
             "then)");
  BOOST_TEST(scene.ready(2, "c", 22) == "propose 2: a.10 b.11 c.22");
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "serve 2: a.10 b.11 c.22");
  BOOST_TEST(scene.after(1h) == "");
}

BOOST_AUTO_TEST_CASE(a_loss_of_the_old_seat_lets_the_successor_take_over) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.lose("b") == "pause (b was lost: connection reset)");
  BOOST_TEST(scene.replica.moving_to(1) == "d");
  BOOST_TEST(scene.ready(1, "d", 21) == "propose 2: a.10 d.21 c.12");
}

BOOST_AUTO_TEST_CASE(a_loss_while_the_new_view_is_proposed_keeps_the_move) {
  Spared scene;
  scene.move(1, "d");
  scene.ready(1, "d", 21);
  BOOST_TEST(scene.lost(2, "c", 12, true) == "");
  BOOST_TEST(scene.ready(2, "c", 22) == "propose 3: a.10 d.21 c.22");
  scene.conflict(2);
  scene.committed(3);
  BOOST_TEST(scene.installed(3) == "stop 1 on b; serve 3: a.10 d.21 c.22");
}

BOOST_AUTO_TEST_CASE(a_target_that_drains_meanwhile_passes_the_stage_on) {
  Spared scene;
  scene.move(1, "d");
  BOOST_TEST(scene.drain("d") == "");
  BOOST_TEST(scene.ready(1, "d", 21) == "stop 1 on d; assign 1 to b.1");
  BOOST_TEST(scene.ready(1, "b", 31) ==
             "pause (view 1 gives way to a planned move); propose 2: a.10 b.31 c.12");
}

BOOST_AUTO_TEST_CASE(a_drained_node_takes_nothing_until_it_is_taken_back) {
  Spared scene;
  BOOST_TEST(scene.drain("d") == "");
  BOOST_TEST(scene.drain("b") == "assign 1 to a.1");
  scene.ready(1, "a", 21);
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "stop 1 on b; serve 2: a.10 a.21 c.12");
  BOOST_TEST(scene.lose("c") == "pause (c was lost: connection reset); assign 2 to a.1");
  scene.ready(2, "a", 22);
  scene.committed(3);
  scene.installed(3);
  BOOST_TEST(scene.undrain("b") == "");  // nothing moves back by itself
  BOOST_TEST(scene.move(1, "b") == "assign 1 to b.1");
}

BOOST_AUTO_TEST_CASE(all_stages_of_a_drained_node_move_into_one_view) {
  Scene scene(2);
  scene.after(0s);
  scene.join("a");
  BOOST_TEST(scene.after(5s) == "assign 0 to a.1; assign 1 to a.1");
  scene.ready(0, "a", 10);
  scene.ready(1, "a", 11);
  scene.committed(1);
  BOOST_TEST(scene.installed(1, {0, 1}) == "serve 1: a.10 a.11");
  scene.join("b");
  BOOST_TEST(scene.drain("a") == "assign 0 to b.1; assign 1 to b.1");
  BOOST_TEST(scene.ready(0, "b", 20) == "");
  BOOST_TEST(scene.ready(1, "b", 21) ==
             "pause (view 1 gives way to a planned move); propose 2: b.20 b.21");
  scene.committed(2);
  BOOST_TEST(scene.installed(2, {0, 1}) == "stop 0 on a; stop 1 on a; serve 2: b.20 b.21");
}

BOOST_AUTO_TEST_CASE(says_why_a_drained_node_cannot_be_emptied_and_again_after_an_undrain) {
  Scene scene(1);
  scene.join("a");
  scene.ready(0, "a", 10);
  scene.committed(1);
  scene.installed(1, {0});
  const std::string why =
      "cannot move off a draining node: needs 10.0 MiB for 1 stage, 0 B free on 0 nodes; 1 "
      "draining";
  scene.drain("a");
  BOOST_TEST(scene.replica.move_trouble(0) == why);
  BOOST_TEST(scene.replica.move_trouble(7) == "");
  scene.undrain("a");
  BOOST_TEST(scene.replica.move_trouble(0) == "");
  const size_t events = scene.replica.history().size();
  scene.drain("a");
  BOOST_TEST(scene.replica.history().size() == events + 1);
  BOOST_TEST(scene.last_event() == why);
}

BOOST_AUTO_TEST_CASE(a_drained_stage_goes_to_the_next_node_when_one_cannot_load_it) {
  Spared scene;
  BOOST_TEST(scene.drain("b") == "assign 1 to d.1");
  BOOST_TEST(scene.fails_to_load(1, "d") == "stop 1 on d; assign 1 to a.1");
  BOOST_TEST(scene.replica.moving_to(1) == "a");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::test

// Scenes from the life of a replica, told as text: every step is one line of actions.
#include <boost/test/unit_test.hpp>

#include "tests/unit/logic/recovery_scene.h"

namespace troupe::test {
namespace {

BOOST_AUTO_TEST_SUITE(recovery)

BOOST_AUTO_TEST_CASE(places_loads_proposes_installs_and_serves) {
  Scene scene;
  BOOST_TEST(scene.join("a") == "");
  BOOST_TEST(scene.join("b") == "");
  BOOST_TEST((scene.replica.state() == ReplicaState::kWaiting));
  BOOST_TEST(scene.join("c") == "assign 0 to a.1; assign 1 to b.1; assign 2 to c.1");
  BOOST_TEST((scene.replica.state() == ReplicaState::kLoading));
  BOOST_TEST(scene.ready(2, "c", 12) == "");
  BOOST_TEST(scene.ready(0, "a", 10) == "");
  BOOST_TEST(scene.ready(0, "a", 10) == "");
  BOOST_TEST(scene.ready(1, "b", 11) == "propose 1: a.10 b.11 c.12");
  BOOST_TEST((scene.replica.state() == ReplicaState::kProposing));
  BOOST_TEST((scene.replica.view().batcher == Incarnation{77}));
  BOOST_TEST(scene.committed(1) == "install 1: a.10 b.11 c.12");
  BOOST_TEST((scene.replica.state() == ReplicaState::kInstalling));
  BOOST_TEST(scene.installed(1, {2, 0, 0}) == "");
  BOOST_TEST(scene.installed(1, {1}) == "serve 1: a.10 b.11 c.12");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.last_event() == "view 1 serves: stage 0 on a, stage 1 on b, stage 2 on c");
  BOOST_TEST(scene.replica.faults() == 0U);
  BOOST_TEST(scene.after(1h) == "");
}

BOOST_AUTO_TEST_CASE(does_not_wait_for_ever_for_nodes_that_do_not_come) {
  Scene scene;
  BOOST_TEST(scene.after(0s) == "");
  BOOST_TEST(scene.join("a") == "");
  BOOST_TEST(scene.after(4s) == "");
  BOOST_TEST(scene.after(1s) == "assign 0 to a.1; assign 1 to a.1; assign 2 to a.1");
}

BOOST_AUTO_TEST_CASE(a_lost_node_s_stage_moves_and_the_survivors_stay) {
  Scene scene;
  scene.serve();
  BOOST_TEST(scene.lose("b") == "pause (b was lost: connection reset); assign 1 to a.1");
  BOOST_TEST((scene.replica.state() == ReplicaState::kLoading));
  BOOST_TEST(scene.ready(1, "a", 21) == "propose 2: a.10 a.21 c.12");
  BOOST_TEST(scene.committed(2) == "install 2: a.10 a.21 c.12");
  BOOST_TEST(scene.installed(2) == "serve 2: a.10 a.21 c.12");
  BOOST_TEST(scene.last_event() ==
             "view 2 serves: stage 1 moved from b to a (b was lost: connection reset)");
  BOOST_TEST(scene.replica.faults() == 1U);
}

BOOST_AUTO_TEST_CASE(a_node_that_comes_back_in_a_new_life_has_lost_its_stages) {
  Scene scene;
  scene.serve();
  BOOST_TEST(scene.join("b", 2) == "pause (b was lost: b joined); assign 1 to b.2");
  BOOST_TEST(scene.ready(1, "b", 11, 1) == "");  // late news from the old life
  BOOST_TEST(scene.ready(1, "b", 21, 2) == "propose 2: a.10 b.21 c.12");
}

BOOST_AUTO_TEST_CASE(a_stage_restarted_in_place_gets_a_new_view) {
  Scene scene;
  scene.serve();
  BOOST_TEST(scene.lost(1, "b", 11, true) == "pause (stage 1 on b was lost: killed by signal 9)");
  BOOST_TEST(scene.ready(1, "b", 11) == "");  // a late repeat of the dead one
  BOOST_TEST(scene.ready(1, "b", 21) == "propose 2: a.10 b.21 c.12");
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "serve 2: a.10 b.21 c.12");
  BOOST_TEST(scene.last_event() ==
             "view 2 serves: stage 1 restarted on b (stage 1 on b was lost: killed by signal 9)");
  // Late news of the first life changes nothing.
  BOOST_TEST(scene.lost(1, "b", 11, false) == "");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
}

BOOST_AUTO_TEST_CASE(a_successor_may_be_heard_of_before_the_loss) {
  Scene scene;
  scene.serve();
  BOOST_TEST(scene.ready(1, "b", 21) ==
             "pause (stage 1 on b was restarted); propose 2: a.10 b.21 c.12");
  BOOST_TEST(scene.lost(1, "b", 11, true) == "");
  BOOST_TEST(scene.committed(2) == "install 2: a.10 b.21 c.12");
}

BOOST_AUTO_TEST_CASE(a_stage_that_is_given_up_goes_to_another_node) {
  Scene scene;
  scene.serve();
  scene.lost(1, "b", 11, true);
  BOOST_TEST(scene.lost(1, "b", 11, false) == "stop 1 on b; assign 1 to a.1");
  BOOST_TEST(scene.ready(1, "a", 21) == "propose 2: a.10 a.21 c.12");
}

BOOST_AUTO_TEST_CASE(where_there_is_no_other_node_it_tries_again_after_a_moment) {
  Scene scene(1);
  BOOST_TEST(scene.join("a") == "assign 0 to a.1");
  BOOST_TEST(scene.lost(0, "a", 0, false) == "stop 0 on a");
  BOOST_TEST((scene.replica.state() == ReplicaState::kWaiting));
  BOOST_TEST(scene.after(900ms) == "");
  BOOST_TEST(scene.after(100ms) == "assign 0 to a.1");
}

BOOST_AUTO_TEST_CASE(a_restarted_head_proposes_above_the_ledger_s_newest_view) {
  Scene scene(1, 7);
  scene.join("a");
  BOOST_TEST(scene.ready(0, "a", 10) == "propose 8: a.10");
  BOOST_TEST(scene.conflict(9) == "propose 10: a.10");  // somebody was there meanwhile
  BOOST_TEST(scene.conflict(9) == "");                  // a repeated answer
  BOOST_TEST(scene.committed(10) == "install 10: a.10");
  BOOST_TEST(scene.conflict(9) == "");
  BOOST_TEST(scene.installed(10, {0}) == "serve 10: a.10");
}

BOOST_AUTO_TEST_CASE(a_lost_answer_of_the_ledger_is_asked_for_again) {
  Scene scene(1);
  scene.join("a");
  BOOST_TEST(scene.ready(0, "a", 10) == "propose 1: a.10");
  BOOST_TEST(scene.after(2s) == "");
  BOOST_TEST(scene.after(1ms) == "propose 1: a.10");
  // It had been written the first time.
  BOOST_TEST(scene.conflict(1) == "propose 2: a.10");
  BOOST_TEST(scene.committed(2) == "install 2: a.10");
}

BOOST_AUTO_TEST_CASE(a_loss_while_proposing_makes_that_view_void) {
  Scene scene;
  scene.join("a");
  scene.join("b");
  scene.join("c");
  scene.ready(0, "a", 10);
  scene.ready(1, "b", 11);
  scene.ready(2, "c", 12);
  BOOST_TEST(scene.lose("c") == "assign 2 to a.1");
  BOOST_TEST(scene.committed(1) == "");  // nobody installs it
  BOOST_TEST(scene.ready(2, "a", 22) == "propose 2: a.10 b.11 a.22");
  BOOST_TEST(scene.committed(1) == "");
  BOOST_TEST(scene.committed(2) == "install 2: a.10 b.11 a.22");
  BOOST_TEST(scene.lose("b") == "assign 1 to a.1");  // and again, while installing
  BOOST_TEST(scene.installed(2) == "");
  BOOST_TEST(scene.ready(1, "a", 31) == "propose 3: a.10 a.31 a.22");
}

BOOST_AUTO_TEST_CASE(a_proposal_that_was_never_written_is_made_again_at_its_number) {
  Scene scene;
  scene.serve();
  scene.lost(1, "b", 11, true);
  BOOST_TEST(scene.ready(1, "b", 21) == "propose 2: a.10 b.21 c.12");
  scene.lost(1, "b", 21, true);
  BOOST_TEST(scene.ready(1, "b", 31) == "propose 3: a.10 b.31 c.12");
  BOOST_TEST(scene.conflict(1) == "propose 2: a.10 b.31 c.12");
  BOOST_TEST(scene.committed(2) == "install 2: a.10 b.31 c.12");
}

BOOST_AUTO_TEST_CASE(a_node_that_cannot_load_is_not_asked_again_until_it_rejoins) {
  Scene scene(1);
  scene.spec.nodes_expected = 1;
  BOOST_TEST(scene.join("a") == "assign 0 to a.1");
  BOOST_TEST(scene.fails_to_load(0, "a", {ErrorCode::kNotFound, "no file x.gguf"}) ==
             "stop 0 on a; stuck (needs 10.0 MiB for 1 stage, 100.0 MiB free on 1 node; the "
             "largest stage needs 10.0 "
             "MiB; 1 refused a stage)");
  BOOST_TEST(scene.replica.history().front().text ==
             "a could not load stage 0: not found: no file x.gguf");
  BOOST_TEST((scene.replica.state() == ReplicaState::kWaiting));
  BOOST_TEST(scene.after(1h) == "");
  BOOST_TEST(scene.join("b") == "assign 0 to b.1");
  scene.lose("b");
  BOOST_TEST(scene.join("a", 2) == "assign 0 to a.2");
}

BOOST_AUTO_TEST_CASE(says_once_that_it_is_stuck_and_goes_on_when_a_node_joins) {
  Scene scene;
  scene.serve();
  scene.lose("a");
  scene.lose("b");
  BOOST_TEST(
      scene.lose("c").starts_with("stuck (needs 30.0 MiB for 3 stages, 0 B free on 0 nodes"));
  BOOST_TEST(scene.after(10s) == "");
  BOOST_TEST(scene.join("d") == "assign 0 to d.1; assign 1 to d.1; assign 2 to d.1");
}

BOOST_AUTO_TEST_CASE(a_spec_that_cannot_be_is_said_to_be_so) {
  ReplicaSpec spec;
  spec.layer_split = {0, 5};
  Scene scene(3, 0, spec);
  scene.join("a");
  scene.join("b");
  BOOST_TEST(scene.join("c") == "stuck (layer_split names 2 stages, the deployment has 3)");
}

BOOST_AUTO_TEST_CASE(a_stage_that_does_not_get_ready_is_placed_elsewhere) {
  Scene scene;
  scene.join("a");
  scene.join("b");
  scene.join("c");
  scene.ready(0, "a", 10);
  scene.ready(1, "b", 11);
  BOOST_TEST(scene.after(120s) == "");
  BOOST_TEST(scene.after(1ms) == "stop 2 on c; assign 2 to a.1");
  BOOST_TEST(scene.ready(2, "c", 12) == "stop 2 on c");  // too late
  BOOST_TEST(scene.ready(2, "a", 22) == "propose 1: a.10 b.11 a.22");
}

BOOST_AUTO_TEST_CASE(a_stage_with_the_wrong_layers_is_stopped) {
  Scene scene(1);
  scene.join("a");
  scene.join("b");
  BOOST_TEST(text(scene.replica.on_stage_ready(0,
                                               {.node = "a",
                                                .node_incarnation = Incarnation{1},
                                                .incarnation = Incarnation{5},
                                                .layers = {0, 9},
                                                .data_address = {}},
                                               scene.now)) == "stop 0 on a; assign 0 to b.1");
}

BOOST_AUTO_TEST_CASE(a_member_that_does_not_acknowledge_is_replaced) {
  Scene scene;
  scene.join("a");
  scene.join("b");
  scene.join("c");
  scene.ready(0, "a", 10);
  scene.ready(1, "b", 11);
  scene.ready(2, "c", 12);
  scene.committed(1);
  scene.installed(1, {0, 1});
  BOOST_TEST(scene.after(1001ms) == "install 1: a.10 b.11 c.12");  // perhaps it did not hear
  BOOST_TEST(scene.after(500ms) == "");
  BOOST_TEST(scene.after(500ms) == "stop 2 on c; assign 2 to a.1");
  BOOST_TEST(scene.installed(1, {2}) == "");
  BOOST_TEST(scene.ready(2, "a", 22) == "propose 2: a.10 b.11 a.22");
  BOOST_TEST(scene.replica.faults() == 1U);
}

BOOST_AUTO_TEST_CASE(a_drained_node_serves_until_its_successor_is_ready) {
  Scene scene;
  scene.serve();
  BOOST_TEST(scene.drain("b") == "assign 1 to a.1");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.after(10s) == "");
  BOOST_TEST(scene.ready(1, "a", 21) ==
             "pause (view 1 gives way to a planned move); propose 2: a.10 a.21 c.12");
  scene.committed(2);
  scene.installed(2);
  BOOST_TEST(scene.last_event() == "view 2 serves: stage 1 moved from b to a (b is draining)");
  BOOST_TEST(scene.replica.faults() == 0U);
}

BOOST_AUTO_TEST_CASE(what_a_drained_node_held_is_stopped_when_the_next_view_serves) {
  Scene scene;
  scene.serve();
  scene.drain("b");
  scene.ready(1, "a", 21);
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "stop 1 on b; serve 2: a.10 a.21 c.12");
  BOOST_TEST(scene.lose("b", "it left") == "");
  BOOST_TEST(scene.replica.faults() == 0U);
}

BOOST_AUTO_TEST_CASE(a_loss_during_a_drain_goes_before_the_move) {
  Scene scene;
  scene.serve();
  scene.drain("b");
  // The old seat on b lives and is ready: the view is mended with it, and the move is tried again
  // afterwards.
  BOOST_TEST(scene.lose("c") ==
             "pause (c was lost: connection reset); stop 1 on a; assign 2 to a.1");
  BOOST_TEST(scene.ready(2, "a", 22) == "propose 2: a.10 b.11 a.22");
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "serve 2: a.10 b.11 a.22; assign 1 to a.1");
}

BOOST_AUTO_TEST_CASE(a_drained_seat_that_dies_before_the_move_is_a_loss) {
  Scene scene;
  scene.serve();
  scene.drain("b");
  // Its node need not restart it: the successor is loading already.
  BOOST_TEST(scene.lost(1, "b", 11, true) ==
             "pause (stage 1 on b was lost: killed by signal 9); stop 1 on b");
  BOOST_TEST(scene.ready(1, "b", 21) == "stop 1 on b");
  BOOST_TEST(scene.ready(1, "a", 31) == "propose 2: a.10 a.31 c.12");
  BOOST_TEST(scene.replica.faults() == 1U);
}

BOOST_AUTO_TEST_CASE(a_successor_whose_own_node_drains_is_not_left_behind) {
  Scene scene;
  scene.serve();
  scene.drain("b");
  scene.drain("a");  // stage 0 moves as well; stage 1 is loading on a
  BOOST_TEST(scene.ready(1, "a", 21) == "stop 1 on a; assign 1 to c.1");
  BOOST_TEST(scene.ready(0, "c", 20) == "");
  BOOST_TEST(scene.ready(1, "c", 31) ==
             "pause (view 1 gives way to a planned move); propose 2: c.20 c.31 c.12");
  scene.committed(2);
  BOOST_TEST(scene.installed(2) == "stop 0 on a; stop 1 on b; serve 2: c.20 c.31 c.12");
}

BOOST_AUTO_TEST_CASE(a_node_that_cannot_be_drained_goes_on_serving) {
  Scene scene(1);
  scene.join("a");
  scene.ready(0, "a", 10);
  scene.committed(1);
  scene.installed(1, {0});
  BOOST_TEST(scene.drain("a") == "");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST(scene.last_event() ==
             "cannot move off a draining node: needs 10.0 MiB for 1 stage, 0 B free on 0 nodes; 1 "
             "draining");
  BOOST_TEST(scene.join("b") == "assign 0 to b.1");
  BOOST_TEST(scene.fails_to_load(0, "b") == "stop 0 on b");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
  BOOST_TEST((scene.replica.view().seats[0].node == "a"));
}

BOOST_AUTO_TEST_CASE(strangers_stages_are_stopped_and_odd_numbers_ignored) {
  Scene scene;
  scene.serve();
  BOOST_TEST(scene.ready(1, "c", 99) == "stop 1 on c");
  BOOST_TEST(scene.ready(7, "c", 99) == "stop 7 on c");
  BOOST_TEST(scene.ready(1, "gone", 99) == "");
  BOOST_TEST(scene.lost(7, "c", 99, false) == "");
  BOOST_TEST(scene.installed(1, {7}) == "");
  BOOST_TEST(text(scene.replica.on_assign_failed(99, {}, scene.now)) == "");
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
}

BOOST_AUTO_TEST_CASE(what_an_earlier_head_left_is_stopped_when_it_serves) {
  Scene scene;
  const auto heard = [&](uint32_t stage, const char* node) {
    return text(scene.replica.on_stage_heard(stage, node));
  };
  for (const char* node : {"a", "b", "c"}) scene.join(node);
  BOOST_TEST(heard(1, "c") == "");  // it might still be wanted
  scene.ready(0, "a", 10);
  scene.ready(1, "b", 11);
  scene.ready(2, "c", 12);
  scene.committed(1);
  BOOST_TEST(heard(1, "c") == "");
  scene.installed(1);
  BOOST_TEST(heard(1, "b") == "");
  BOOST_TEST(heard(1, "c") == "stop 1 on c");
  BOOST_TEST(heard(7, "c") == "stop 7 on c");
  BOOST_TEST(heard(1, "gone") == "");
  // A successor that loads, and the seat that it will take.
  BOOST_TEST(scene.move(1, "c") == "assign 1 to c.1");
  BOOST_TEST(heard(1, "c") == "");
  BOOST_TEST(heard(1, "b") == "");
}

BOOST_AUTO_TEST_CASE(news_of_stages_that_have_no_place_or_do_not_exist_change_nothing) {
  Scene scene;
  scene.join("a");  // it waits for two more
  BOOST_TEST(scene.ready(1, "a", 21) == "stop 1 on a");
  BOOST_TEST(scene.ready(9, "a", 29) == "stop 9 on a");
  BOOST_TEST(scene.lost(1, "a", 21, false) == "");
  BOOST_TEST(scene.lost(9, "a", 29, false) == "");
  BOOST_TEST(text(scene.replica.on_wrong(1, Incarnation{21}, "7 is not 8", scene.now)) == "");
  scene.join("b");
  scene.join("c");
  scene.ready(0, "a", 10);
  scene.ready(1, "b", 11);
  // Of a life of the node before this one; and one that says who it is not.
  BOOST_TEST(scene.ready(2, "c", 12, 7) == "");
  BOOST_TEST(scene.ready(2, "c", 0) == "stop 2 on c; assign 2 to a.1");
  BOOST_TEST(scene.ready(2, "a", 22) == "propose 1: a.10 b.11 a.22");
  scene.committed(1);
  BOOST_TEST(scene.installed(1, {0, 1, 9}) == "");
  BOOST_TEST(scene.installed(1, {2}) == "serve 1: a.10 b.11 a.22");
}

BOOST_AUTO_TEST_CASE(a_failed_attempt_counts_only_while_it_loads) {
  Scene scene;
  const auto failed = [&](uint64_t attempt) {
    return text(scene.replica.on_assign_failed(attempt, {ErrorCode::kIo, "disk"}, scene.now));
  };
  BOOST_TEST(failed(0) == "");  // nothing has been assigned yet
  scene.serve();
  BOOST_TEST(failed(99) == "");
  BOOST_TEST(scene.fails_to_load(1, "b") == "");  // it is ready
  BOOST_TEST((scene.replica.state() == ReplicaState::kServing));
}

BOOST_AUTO_TEST_CASE(a_stage_without_a_place_moves_nowhere) {
  Scene scene(1);
  scene.join("a");
  scene.ready(0, "a", 10);
  scene.committed(1);
  scene.installed(1, {0});
  BOOST_TEST(scene.lose("a").starts_with("pause (a was lost: connection reset); stuck"));
  BOOST_TEST(scene.replica.moving_to(0) == "");
}

BOOST_AUTO_TEST_CASE(every_state_has_a_name) {
  BOOST_TEST(to_string(ReplicaState::kServing) == std::string("serving"));
  BOOST_TEST(to_string(static_cast<ReplicaState>(5)) == std::string("unknown"));
}

BOOST_AUTO_TEST_CASE(a_stage_that_is_lost_wherever_it_goes_lets_the_replica_rest) {
  Scene scene(1);
  scene.join("a");
  scene.join("b");
  scene.ready(0, "a", 10);
  scene.committed(1);
  scene.installed(1, {0});
  std::string here = "a", there = "b";
  uint64_t life = 10, view = 1;
  const auto lost_and_moved = [&] {
    const std::string did = scene.lost(0, here, life, false);
    std::swap(here, there);
    if (did.find("assign 0 to " + here) == std::string::npos) return did;
    scene.ready(0, here, ++life);
    scene.committed(++view);
    scene.installed(view, {0});
    return did;
  };
  for (int i = 0; i < 4; ++i) {
    scene.now += 100ms;
    BOOST_TEST(lost_and_moved().find("stuck") == std::string::npos);
  }
  BOOST_TEST(lost_and_moved() ==
             "pause (stage 0 on a was lost: killed by signal 9); stop 0 on a; stuck (stage 0 was "
             "moved 4 times and lost again each time: it is tried again in 10 s)");
  BOOST_TEST(scene.after(9s) == "");
  BOOST_TEST(scene.after(1s) == "assign 0 to b.1");
  scene.ready(0, "b", ++life);
  scene.committed(++view);
  scene.installed(view, {0});
  // What serves for a while starts from nothing.
  here = "b";
  there = "a";
  for (int i = 0; i < 10; ++i) {
    scene.after(1s);
    BOOST_TEST(lost_and_moved().find("stuck") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(history_is_bounded) {
  Scene scene(1);
  scene.join("a");
  scene.ready(0, "a", 1);
  for (uint64_t life = 2; life < 200; ++life) scene.ready(0, "a", life);
  BOOST_TEST(scene.replica.history().size() == 64U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::test

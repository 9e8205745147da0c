// What `troupe drain`, `troupe move` and `troupe standby` make of a cluster's status.
#include "apps/cli/planned_moves.h"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::cli;

namespace {

using Kind = MoveVerdict::Kind;

// node-1 and node-2 hold a stage each, node-2 is draining.
ClusterStatus example() {
  ClusterStatus status;
  for (const char* id : {"node-1", "node-2", "node-3"}) {
    NodeStatus node;
    node.id = id;
    status.nodes.push_back(node);
  }
  status.nodes[1].draining = true;
  DeploymentStatus deployment;
  deployment.name = "demo";
  deployment.state = DeploymentState::kServing;
  for (uint32_t index = 0; index < 2; ++index) {
    StageStatus stage;
    stage.index = index;
    stage.node = status.nodes[index].id;
    deployment.stages.push_back(stage);
  }
  status.deployments.push_back(deployment);
  return status;
}

std::string text(const MoveVerdict& verdict) {
  const char* kind = verdict.kind == Kind::kDone     ? "done"
                     : verdict.kind == Kind::kFailed ? "failed"
                                                     : "going";
  return verdict.text.empty() ? kind : kind + (": " + verdict.text);
}

struct Example {
  ClusterStatus status = example();
  DeploymentStatus& deployment = status.deployments[0];
  StageStatus& stage = deployment.stages[1];
  std::string drain() const { return text(judge_drain(status, "node-2")); }
  std::string move(const std::string& model = "") const {
    return text(judge_move(status, {model, 1, "node-3"}));
  }
  std::string standby(StandbyPolicy policy) const {
    return text(judge_standby(status, {"", policy}));
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(planned_moves, Example)

BOOST_AUTO_TEST_CASE(a_node_is_empty_when_the_cluster_serves_without_it) {
  BOOST_TEST(drain() == "going: stage 1: on node-2");
  stage.moving_to = "node-3";
  BOOST_TEST(drain() == "going: stage 1: loading on node-3");
  // The new view is known and not installed yet.
  stage.moving_to.clear();
  stage.node = "node-3";
  deployment.state = DeploymentState::kRecovering;
  deployment.detail = "installing";
  BOOST_TEST(drain() == "going: demo is recovering: installing");
  deployment.state = DeploymentState::kServing;
  BOOST_TEST(drain() == "done");
  // A move to it had begun before.
  deployment.stages[0].moving_to = "node-2";
  BOOST_TEST(drain() == "going: stage 0: loading on node-2");
}

BOOST_AUTO_TEST_CASE(says_what_is_still_on_the_node_and_why) {
  stage.move_trouble = "no room";
  deployment.stages[0].node = "node-2";
  BOOST_TEST(drain() == "going: stage 0: on node-2; stage 1: still on node-2: no room");
  deployment.stages[0].move_trouble = "no room";
  BOOST_TEST(drain() == "going: stages 0, 1: still on node-2: no room");
}

BOOST_AUTO_TEST_CASE(a_drain_that_nobody_wants_any_more_has_failed) {
  status.nodes[1].draining = false;
  const std::string gone =
      "failed: node-2 is not draining any more: it was taken back, or the head started anew";
  BOOST_TEST(drain() == gone);
  status.nodes.clear();
  BOOST_TEST(drain() == gone);
}

BOOST_AUTO_TEST_CASE(a_deployment_that_cannot_run_holds_no_node) {
  deployment.state = DeploymentState::kFailed;
  deployment.detail = "no such file";
  BOOST_TEST(drain() == "done");
  BOOST_TEST(move() == "failed: demo is failed: no such file");
}

BOOST_AUTO_TEST_CASE(a_stage_has_moved_when_it_serves_there) {
  stage.moving_to = "node-3";
  BOOST_TEST(move() == "going: stage 1: loading on node-3");
  stage.moving_to.clear();
  stage.node = "node-3";
  deployment.state = DeploymentState::kLoading;
  BOOST_TEST(move() == "going: demo is loading");
  deployment.state = DeploymentState::kServing;
  BOOST_TEST(move() == "done");
  BOOST_TEST(move("demo") == "done");
  BOOST_TEST(move("other") == "failed: there is no such model any more");
}

BOOST_AUTO_TEST_CASE(a_successor_that_outlives_its_predecessor_is_waited_for) {
  stage.moving_to = "node-3";
  deployment.state = DeploymentState::kRecovering;
  deployment.detail = "loading";
  BOOST_TEST(move() == "going: demo is recovering: loading");
}

BOOST_AUTO_TEST_CASE(standbys_are_waited_for_where_they_can_be) {
  deployment.standby_policy = StandbyPolicy::kKv;
  BOOST_TEST(standby(StandbyPolicy::kKv) == "going: 0 of 2 stages have a standby");
  deployment.stages[0].standby = "node-2";
  stage.standby_state = StandbyState::kLoading;
  BOOST_TEST(standby(StandbyPolicy::kKv) == "going: 1 of 2 stages have a standby");
  // One that nobody has room for is not waited for.
  stage.standby_state = StandbyState::kNone;
  stage.standby_trouble = "no node with room for a standby";
  BOOST_TEST(standby(StandbyPolicy::kKv) == "done: 1 of 2 stages have a standby");
  stage.standby_trouble.clear();
  stage.standby = "node-3";
  stage.standby_state = StandbyState::kFilling;
  BOOST_TEST(standby(StandbyPolicy::kKv) == "done: 2 of 2 stages have a standby");
  BOOST_TEST(stages_followed(deployment) == 2U);
  deployment.state = DeploymentState::kRecovering;
  BOOST_TEST(standby(StandbyPolicy::kKv) == "going: demo is recovering");
}

BOOST_AUTO_TEST_CASE(no_standbys_is_reached_when_the_last_has_gone) {
  deployment.stages[0].standby = "node-2";
  BOOST_TEST(standby(StandbyPolicy::kNone) == "going: 1 of 2 stages have a standby");
  deployment.stages[0].standby.clear();
  BOOST_TEST(standby(StandbyPolicy::kNone) == "done: 0 of 2 stages have a standby");
}

BOOST_AUTO_TEST_CASE(a_policy_that_is_another_by_now_has_failed) {
  BOOST_TEST(standby(StandbyPolicy::kKv) ==
             "failed: the policy is none now: somebody else set it, or the head started anew and "
             "goes by its configuration");
  deployment.state = DeploymentState::kFailed;
  deployment.detail = "no such file";
  BOOST_TEST(standby(StandbyPolicy::kNone) == "failed: demo is failed: no such file");
  status.deployments.clear();
  BOOST_TEST(standby(StandbyPolicy::kKv) == "failed: there is no such model any more");
}

BOOST_AUTO_TEST_CASE(a_move_that_was_undone_has_failed) {
  BOOST_TEST(move() ==
             "failed: it is on node-2; the events of troupe status say what came between");
  stage.move_trouble = "node-3 could not load stage 1";
  BOOST_TEST(move() == "failed: node-3 could not load stage 1");
  // On its way elsewhere: somebody else's order, or the node was drained.
  stage.move_trouble.clear();
  stage.node = "node-3";
  stage.moving_to = "node-1";
  BOOST_TEST(move() ==
             "failed: it is loading on node-1; the events of troupe status say what came between");
  deployment.stages.clear();
  deployment.state = DeploymentState::kLoading;
  BOOST_TEST(move() == "failed: the head started anew; demo is loading");
}

BOOST_AUTO_TEST_SUITE_END()

#include "apps/cli/status_report.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

using namespace troupe;
using namespace troupe::cli;

namespace {

ClusterStatus example() {
  ClusterStatus status;
  status.cluster_id = "00000000000000aa";
  status.version = "0.1.0";
  status.faults_survived = 2;
  NodeStatus node;
  node.id = "node-1";
  node.role = "head";
  node.state = NodeState::kSuspect;
  node.incarnation = 255;
  node.process = 77;
  status.nodes.push_back(node);
  DeploymentStatus deployment;
  deployment.name = "demo";
  deployment.state = DeploymentState::kRecovering;
  deployment.detail = "waiting for \033[31mnode-2";
  deployment.view = 9;
  StageStatus stage;
  stage.node = "node-1";
  stage.layer_last = 10;
  stage.busy_fraction = 0.42;
  deployment.stages.push_back(stage);
  deployment.batcher.tokens_replayed = 20;
  status.deployments.push_back(deployment);
  for (int i = 0; i < 20; ++i)
    status.events.push_back({.unix_ms = i, .text = "event " + std::to_string(i)});
  return status;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(status_report)

BOOST_AUTO_TEST_CASE(tells_nodes_stages_faults_and_the_latest_events) {
  const std::string text = status_text(example());
  for (const char* words : {"faults survived: 2", "node-1", "suspect", "recovering  view 9", "0-9",
                            "42 %", "in daemon", "20 computed again", "event 19"})
    BOOST_TEST(text.find(words) != std::string::npos, words);
  BOOST_TEST(text.find("event 7\n") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(lets_nothing_from_the_cluster_steer_the_terminal) {
  BOOST_TEST(status_text(example()).find('\033') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(shows_who_stands_by_only_if_somebody_shall) {
  ClusterStatus status = example();
  BOOST_TEST(status_text(status).find("standby") == std::string::npos);
  DeploymentStatus& deployment = status.deployments[0];
  deployment.standby_policy = StandbyPolicy::kKv;
  deployment.stages[0].standby = "node-9";
  deployment.stages[0].standby_behind = 204;
  std::string text = status_text(status);
  BOOST_TEST(text.find("node-9 (204 behind)") != std::string::npos);
  for (StageStatus& stage : deployment.stages) stage.standby = "node-8";
  BOOST_TEST(status_text(status).find("unprotected") == std::string::npos);
  deployment.stages[0].standby.clear();
  text = status_text(status);
  BOOST_TEST(text.find("unprotected for now (no standby): stage 0") != std::string::npos);
  const nlohmann::ordered_json document = status_json(status);
  BOOST_TEST(document["deployments"][0]["standby_policy"] == "kv");
  BOOST_TEST(document["deployments"][0]["stages"][0]["standby"] == "");
}

BOOST_AUTO_TEST_CASE(says_which_stages_are_unprotected_and_why) {
  ClusterStatus status = example();
  DeploymentStatus& deployment = status.deployments[0];
  deployment.standby_policy = StandbyPolicy::kKv;
  deployment.stages.assign(5, deployment.stages[0]);
  for (uint32_t index = 0; index < 5; ++index) deployment.stages[index].index = index;
  deployment.stages[0].standby = "node-3";
  deployment.stages[0].standby_behind = 1234567;
  deployment.stages[0].standby_state = StandbyState::kFilling;
  deployment.stages[1].standby_state = StandbyState::kLoading;
  deployment.stages[2].standby_trouble = "no node with room \033for a standby";
  deployment.stages[3].standby_trouble = "another reason";
  deployment.stages[4].standby_trouble = "another reason";
  deployment.unprotected = 4;
  BOOST_TEST(unprotected_text(deployment, "> ") ==
             "> unprotected for now (no standby): stage 1\n"
             "> stage 2 is unprotected: no node with room \\x1bfor a standby\n"
             "> stages 3, 4 are unprotected: another reason\n");
  const std::string text = status_text(status);
  for (const char* words : {"node-3 (1,234,567 behind)", "loading", "\n  stage 2 is unprotected: "})
    BOOST_TEST(text.find(words) != std::string::npos, words);
  const nlohmann::ordered_json document = status_json(status)["deployments"][0];
  BOOST_TEST(document["unprotected"] == 4);
  BOOST_TEST(document["stages"][0]["standby_state"] == "filling");
  BOOST_TEST(document["stages"][1]["standby_state"] == "loading");
  BOOST_TEST(document["stages"][2]["standby_state"] == "none");
  BOOST_TEST(document["stages"][3]["standby_trouble"] == "another reason");
  deployment.standby_policy = StandbyPolicy::kNone;
  BOOST_TEST(unprotected_text(deployment, "") == "");
}

BOOST_AUTO_TEST_CASE(numbers_of_rows_are_grouped_by_thousands) {
  ClusterStatus status = example();
  status.deployments[0].standby_policy = StandbyPolicy::kKv;
  StageStatus& stage = status.deployments[0].stages[0];
  stage.standby = "n";
  for (const auto& [rows, words] : {std::pair<uint64_t, const char*>{999, "n (999 behind)"},
                                    {1000, "n (1,000 behind)"},
                                    {999999, "n (999,999 behind)"},
                                    {1000000, "n (1,000,000 behind)"}}) {
    stage.standby_behind = rows;
    BOOST_TEST(status_text(status).find(words) != std::string::npos, words);
  }
}

BOOST_AUTO_TEST_CASE(shows_what_drains_where_it_goes_and_why_not) {
  ClusterStatus status = example();
  status.nodes[0].state = NodeState::kAlive;
  status.nodes[0].draining = true;
  StageStatus& stage = status.deployments[0].stages[0];
  stage.moving_to = "node-2";
  std::string text = status_text(status);
  BOOST_TEST(text.find("draining") != std::string::npos);
  BOOST_TEST(text.find("node-1 to node-2") != std::string::npos);
  BOOST_TEST(text.find("is not empty") == std::string::npos);
  stage.moving_to.clear();
  stage.move_trouble = "no room";
  text = status_text(status);
  BOOST_TEST(text.find("node-1 is not empty: no room") != std::string::npos);
  const nlohmann::ordered_json document = status_json(status);
  BOOST_TEST(document["nodes"][0]["state"] == "draining");
  BOOST_TEST(document["nodes"][0]["draining"] == true);
  BOOST_TEST(document["deployments"][0]["stages"][0]["move_trouble"] == "no room");
  // What is worse than draining is said instead.
  status.nodes[0].state = NodeState::kDead;
  BOOST_TEST(std::string(state_text(status.nodes[0])) == "dead");
  status.nodes[0].draining = false;
  status.nodes[0].state = NodeState::kAlive;
  BOOST_TEST(status_text(status).find("is not empty") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(has_the_same_facts_as_json) {
  const nlohmann::ordered_json document = status_json(example());
  BOOST_TEST(document["nodes"][0]["state"] == "suspect");
  BOOST_TEST(document["nodes"][0]["incarnation"] == "00000000000000ff");
  BOOST_TEST(document["deployments"][0]["view"] == 9);
  BOOST_TEST(document["deployments"][0]["stages"][0]["busy_fraction"] == 0.42);
  BOOST_TEST(document["events"].size() == 20U);
}

BOOST_AUTO_TEST_SUITE_END()

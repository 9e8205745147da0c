// What `troupe up` writes before it starts anything.
#include "apps/cli/up.h"

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "tests/unit/apps/scratch_folder.h"

using namespace troupe;
using namespace troupe::cli;

namespace {

struct OwnHome {
  OwnHome() {
    setenv("TROUPE_HOME", folder.path().c_str(), 1);
    options.model = "smollm2-135m";
    options.port = 41420;
  }
  ~OwnHome() { unsetenv("TROUPE_HOME"); }
  test::ScratchFolder folder;
  UpOptions options;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(up, OwnHome)

BOOST_AUTO_TEST_CASE(writes_a_head_and_workers_that_agree) {
  options.nodes = 3;
  const Result<ClusterRecord> record = write_cluster(options, "/models/a.gguf");
  BOOST_REQUIRE_MESSAGE(record.ok(), (record.ok() ? "" : record.error().message));
  BOOST_REQUIRE(record.value().daemons.size() == 3U);
  BOOST_TEST(record.value().rpc == "127.0.0.1:41421");
  const NodeConfig head = load_config(record.value().daemons[0].config()).value();
  BOOST_TEST((head.node.role == NodeRole::kHead));
  BOOST_TEST(head.deployment.name == "smollm2-135m");
  BOOST_TEST(head.deployment.model == "/models/a.gguf");
  BOOST_TEST(head.deployment.stages == 3U);
  BOOST_TEST(head.deployment.nodes_expected == 3U);
  BOOST_TEST(head.rpc.listen == record.value().rpc);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const NodeConfig worker = load_config(record.value().daemons[i].config()).value();
    BOOST_TEST((worker.node.role == NodeRole::kWorker));
    BOOST_TEST(worker.node.head == head.node.listen);
    BOOST_TEST(worker.cluster.id == head.cluster.id);
    BOOST_TEST(worker.rpc.listen == "");
    BOOST_TEST(worker.node.state != head.node.state);
  }
}

BOOST_AUTO_TEST_CASE(tells_every_node_of_standbys_journals_and_priorities) {
  options.nodes = 2;
  const auto written = [&](size_t node) {
    return load_config(write_cluster(options, "/m.gguf").value().daemons[node].config()).value();
  };
  BOOST_TEST((written(0).deployment.standby == StandbyPolicy::kNone));
  BOOST_TEST(written(0).deployment.journal_bytes == DeploymentConfig{}.journal_bytes);
  BOOST_TEST(written(0).node.realtime);
  options.deployment.standby = StandbyPolicy::kKv;
  options.deployment.journal_bytes = parse_bytes("3MiB").value();
  options.realtime = false;
  for (const size_t node : {size_t{0}, size_t{1}}) {
    BOOST_TEST((written(node).deployment.standby == StandbyPolicy::kKv));
    BOOST_TEST(written(node).deployment.journal_bytes == uint64_t{3} << 20);
    BOOST_TEST(!written(node).node.realtime);
  }
}

BOOST_AUTO_TEST_CASE(reads_bytes_as_the_configuration_does) {
  BOOST_TEST(parse_bytes("0").value() == 0U);
  BOOST_TEST(parse_bytes("65").value() == 65U);
  BOOST_TEST(parse_bytes("2GiB").value() == uint64_t{2} << 30);
  for (const char* bad : {"", "64MB", "-1", "1e6", "MiB", "~", "1 2"}) {
    const Result<uint64_t> bytes = parse_bytes(bad);
    BOOST_TEST(!bytes.ok(), bad);
    if (!bytes.ok())
      BOOST_TEST(bytes.error().message ==
                 "\"" + std::string(bad) +
                     "\" must be a number of bytes, for example 1048576, 512MiB or 8GiB");
  }
}

BOOST_AUTO_TEST_CASE(refuses_a_split_that_does_not_fit) {
  options.nodes = 2;
  options.deployment.layer_split = {0, 20, 10};
  options.stages = 3;
  const auto record = write_cluster(options, "/m.gguf");
  BOOST_REQUIRE(!record.ok());
  BOOST_TEST(record.error().message.find("must grow") != std::string::npos, record.error().message);
}

BOOST_AUTO_TEST_CASE(removes_the_nodes_of_an_ended_cluster_and_nothing_else) {
  std::filesystem::create_directories(folder.file("clusters/default/node-9/state"));
  folder.write("clusters/default/notes.txt", "mine");
  BOOST_REQUIRE(write_cluster(options, "/m.gguf").ok());
  BOOST_TEST(!std::filesystem::exists(folder.file("clusters/default/node-9")));
  BOOST_TEST(folder.read("clusters/default/notes.txt") == "mine");
}

BOOST_AUTO_TEST_CASE(names_a_deployment_that_every_check_accepts) {
  BOOST_TEST(deployment_name("smollm2-135m") == "smollm2-135m");
  BOOST_TEST(deployment_name("/a/b/My Model.gguf") == "My-Model");
}

BOOST_AUTO_TEST_SUITE_END()

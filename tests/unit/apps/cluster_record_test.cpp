#include "apps/cli/cluster_record.h"

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "tests/unit/apps/scratch_folder.h"

using namespace troupe;
using namespace troupe::cli;

namespace {

struct OwnHome {
  OwnHome() { setenv("TROUPE_HOME", folder.path().c_str(), 1); }
  ~OwnHome() { unsetenv("TROUPE_HOME"); }
  test::ScratchFolder folder;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cluster_records, OwnHome)

BOOST_AUTO_TEST_CASE(come_back_as_they_were_saved) {
  const ClusterRecord record{
      .name = "demo",
      .cluster_id = "00000000000000aa",
      .rpc = "127.0.0.1:7421",
      .model = "smollm2-135m",
      .daemons = {{.node = "node-1", .folder = "/f/1", .process = 42, .start_ticks = 7},
                  {.node = "node-2", .folder = "/f/2", .process = 43, .start_ticks = 8}}};
  BOOST_REQUIRE(save_cluster_record(record).ok());
  const ClusterRecord loaded = load_cluster_record("demo").value();
  BOOST_TEST(loaded.cluster_id == record.cluster_id);
  BOOST_TEST(loaded.rpc == record.rpc);
  BOOST_TEST(loaded.model == record.model);
  BOOST_REQUIRE(loaded.daemons.size() == 2U);
  BOOST_TEST(loaded.daemons[1].node == "node-2");
  BOOST_TEST(loaded.daemons[1].process == 43);
  BOOST_TEST(loaded.daemons[1].start_ticks == 8U);
  BOOST_TEST(loaded.daemons[0].config() == "/f/1/config.yaml");
  BOOST_REQUIRE(remove_cluster_record("demo").ok());
  const auto removed = load_cluster_record("demo");
  BOOST_REQUIRE(!removed.ok());
  BOOST_TEST((removed.error().code == ErrorCode::kNotFound));
}

BOOST_AUTO_TEST_CASE(never_name_a_process_that_kill_reads_as_a_group) {
  const char* kBad[] = {
      "{",
      "[]",
      R"({"rpc":"a:1"})",
      R"({"rpc":"a:1","daemons":[1]})",
      R"({"rpc":"a:1","daemons":[{"node":"n","folder":"/f","process":-1,"start_ticks":1}]})",
      R"({"rpc":"a:1","daemons":[{"node":"n","folder":"/f","process":0,"start_ticks":1}]})",
      R"({"rpc":"a:1","daemons":[{"node":"n","folder":"/f","process":1,"start_ticks":1}]})",
      R"({"rpc":"a:1","daemons":[{"node":"n","folder":"/f","process":"2","start_ticks":1}]})",
      R"({"rpc":"a:1","daemons":[{"node":"n","folder":"/f","process":9}]})"};
  std::filesystem::create_directories(folder.file("clusters/bad"));
  for (const char* text : kBad) {
    folder.write("clusters/bad/cluster.json", text);
    const auto record = load_cluster_record("bad");
    BOOST_TEST_CONTEXT(text) {
      BOOST_REQUIRE(!record.ok());
      BOOST_TEST((record.error().code == ErrorCode::kInvalidFile));
    }
  }
}

BOOST_AUTO_TEST_CASE(stay_inside_the_home_folder) {
  for (const char* name : {"", "..", "../x", "a/b", ".x", "a b"})
    BOOST_TEST(!cluster_folder(name).ok(), name);
  BOOST_TEST(cluster_folder("demo-1").value() == folder.path() + "/clusters/demo-1");
}

BOOST_AUTO_TEST_SUITE_END()

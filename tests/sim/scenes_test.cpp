// Single faults whose course is known, told step by step. What many at once do is simulate's.
#include <boost/test/unit_test.hpp>

#include <string>

#include "base/log.h"
#include "tests/sim/client.h"
#include "tests/sim/cluster.h"
#include "tests/sim/fake_stage.h"

namespace troupe::sim {
namespace {

struct Quiet {
  Quiet() { (void)start_logging({.level = LogLevel::kOff, .file = {}, .name = "sim"}); }
};

// Three nodes, three stages, and requests of 80 tokens, each of which takes some 30 ms.
class Scene {
 public:
  explicit Scene(uint64_t seed, StandbyPolicy standby = StandbyPolicy::kNone)
      : cluster(options(seed, standby)) {}

  std::shared_ptr<Client> request(const RequestId& id) {
    ClientPlan plan;
    plan.call.id = id;
    plan.call.prompt_tokens = {1, 2, 3, 4, 5};
    plan.call.max_tokens = 80;
    plan.call.sampling = {.temperature = 0.5F, .top_p = 1, .seed = 7};
    plan.call.ignore_end = true;
    UndisturbedRun run = undisturbed_run(plan.call.prompt_tokens, 7, 80, 3, cluster.vocabulary());
    plan.expected = std::move(run.tokens);
    plan.rows = std::move(run.rows);
    auto client = std::make_shared<Client>(cluster, std::move(plan));
    client->begin();
    return client;
  }
  void pass(Duration duration) {
    cluster.run(duration, [] { return false; });
  }
  bool ends(const std::shared_ptr<Client>& client) {
    return cluster.run(60s, [&] { return client->done(); });
  }
  // A request that runs, with every stage in its place.
  std::shared_ptr<Client> running_request() {
    auto client = request("first");
    BOOST_REQUIRE(cluster.run(30s, [&] { return client->cursor() >= 5; }));
    return client;
  }
  DeploymentStatus deployment() {
    const auto status = cluster.status(10s);
    BOOST_REQUIRE(status.has_value());
    return status->deployments.at(0);
  }
  const std::string& broken() const { return cluster.witness()->first_broken(); }
  uint64_t views() const { return cluster.witness()->views(); }

  Cluster cluster;

 private:
  static ClusterOptions options(uint64_t seed, StandbyPolicy standby) {
    ClusterOptions options;
    options.seed = seed;
    options.standby = standby;
    options.step = 10ms;
    return options;
  }
};

constexpr uint64_t kSeeds = 10;

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(Quiet);
BOOST_AUTO_TEST_SUITE(sim_scenes)

BOOST_AUTO_TEST_CASE(a_ledger_that_is_away_stops_no_stream_and_new_requests_may_come_again) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scene scene(seed);
    const auto first = scene.running_request();
    const uint32_t tries = first->tries();
    scene.cluster.trouble_ledger({.away = true});
    const uint64_t heard = first->cursor();
    const auto second = scene.request("second");
    scene.pass(800ms);
    BOOST_TEST(first->cursor() > heard + 10);
    BOOST_TEST(!second->done());
    BOOST_TEST(second->cursor() == 0U);
    BOOST_TEST(second->tries() > 3U);
    BOOST_TEST(second->last_error() == "ledger: database or disk is full");
    scene.cluster.trouble_ledger({});
    BOOST_TEST(scene.ends(first));
    BOOST_TEST(scene.ends(second));
    BOOST_TEST(first->tries() == tries);
    BOOST_TEST(scene.broken() == "");
  }
}

BOOST_AUTO_TEST_CASE(a_ledger_that_did_it_and_said_no_doubles_nothing) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scene scene(seed);
    const auto first = scene.running_request();
    scene.cluster.trouble_ledger({.doubt = true});
    const auto second = scene.request("second");
    scene.cluster.crash(1, 50ms);
    scene.pass(1s);
    BOOST_TEST(scene.cluster.witness()->has_record("second"));
    BOOST_TEST(second->cursor() == 0U);
    scene.cluster.trouble_ledger({});
    BOOST_TEST(scene.ends(first));
    BOOST_TEST(scene.ends(second));
    BOOST_TEST(scene.broken() == "");
  }
}

BOOST_AUTO_TEST_CASE(nobody_takes_a_seat_while_the_ledger_is_away_and_all_is_well_when_it_is_back) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scene scene(seed);
    const auto first = scene.running_request();
    const uint64_t views = scene.views();
    scene.cluster.trouble_ledger({.away = true});
    scene.cluster.crash(1, 50ms);
    scene.pass(3s);
    BOOST_TEST(scene.views() == views);
    BOOST_TEST(!first->done());
    scene.cluster.trouble_ledger({});
    BOOST_TEST(scene.ends(first));
    BOOST_TEST(scene.views() > views);
    BOOST_TEST(scene.broken() == "");
  }
}

BOOST_AUTO_TEST_CASE(a_head_that_cannot_read_its_ledger_serves_when_it_can) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scene scene(seed);
    const auto first = scene.running_request();
    scene.cluster.trouble_ledger({.away = true});
    scene.cluster.crash(0, 50ms);
    scene.pass(3s);
    BOOST_TEST(!first->done());
    const DeploymentStatus status = scene.deployment();
    BOOST_TEST((status.state == DeploymentState::kLoading));  // not failed: it goes on by itself
    BOOST_TEST(status.detail == "ledger: database or disk is full");
    scene.cluster.trouble_ledger({});
    BOOST_TEST(scene.ends(first));
    BOOST_TEST(scene.broken() == "");
  }
}

BOOST_AUTO_TEST_CASE(a_clock_that_leaps_forward_evicts_nobody) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    for (uint32_t node = 0; node < 3; ++node) {
      Scene scene(seed);
      const auto first = scene.running_request();
      const uint64_t views = scene.views();
      const uint32_t tries = first->tries();
      scene.cluster.leap(node, 20s);
      scene.cluster.leap_wall(node, -3600s);
      BOOST_TEST(scene.ends(first));
      BOOST_TEST(first->tries() == tries);
      BOOST_TEST(scene.views() == views);
      BOOST_TEST(scene.broken() == "");
    }
}

// It waits three seconds for a client to come back; those in which it stood still itself, or its
// clock leapt over, are nobody's absence.
BOOST_AUTO_TEST_CASE(a_head_that_lost_time_cancels_no_request_for_it) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    for (const bool leaps : {true, false}) {
      Scene scene(seed);
      const auto first = scene.running_request();
      first->leave(200ms);
      scene.pass(50ms);
      if (leaps) {
        scene.cluster.leap(0, 5s);
      } else {
        scene.cluster.pause(0, true);
        scene.pass(5s);
        scene.cluster.pause(0, false);
      }
      BOOST_TEST(scene.ends(first));
      BOOST_TEST(scene.broken() == "");
    }
}

BOOST_AUTO_TEST_CASE(a_node_that_loads_nothing_is_left_alone) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scene scene(seed);
    const auto first = scene.running_request();
    scene.cluster.sicken(1, true);
    scene.cluster.crash(1, 50ms);
    scene.cluster.crash(2, 50ms);
    BOOST_TEST(scene.ends(first));
    BOOST_TEST(scene.broken() == "");
    for (const Seat& seat : scene.cluster.witness()->newest()->seats)
      BOOST_TEST(seat.node != "node-2");
  }
}

BOOST_AUTO_TEST_CASE(a_frozen_node_is_replaced_and_wakes_to_no_effect) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scene scene(seed, StandbyPolicy::kKv);
    const auto first = scene.running_request();
    const uint64_t views = scene.views();
    const uint32_t tries = first->tries();
    scene.cluster.pause(1, true);
    scene.pass(1500ms);
    BOOST_TEST(scene.views() > views);
    scene.cluster.pause(1, false);
    BOOST_TEST(scene.ends(first));
    BOOST_TEST(first->tries() == tries);
    BOOST_TEST(scene.broken() == "");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::sim

// The figures of `troupe bench` from made-up streams whose answers are worked out by hand.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/bench.h"

using namespace troupe;
using namespace troupe::cli;

namespace {

Instant at(int64_t ms) {
  return Instant{} + std::chrono::milliseconds{ms};
}

StreamRecord stream(int64_t begin, std::vector<int64_t> tokens, int64_t end) {
  StreamRecord record;
  record.begin = at(begin);
  for (const int64_t ms : tokens) record.tokens.push_back(at(ms));
  record.end = at(end);
  record.prompt_tokens = 10;
  return record;
}

ClusterStatus look(double busy) {
  ClusterStatus status;
  status.deployments.resize(1);
  status.deployments[0].stages.resize(1);
  status.deployments[0].stages[0].node = "node-1";
  status.deployments[0].stages[0].layer_last = 30;
  status.deployments[0].stages[0].busy_fraction = busy;
  return status;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bench_figures)

BOOST_AUTO_TEST_CASE(of_two_streams) {
  // Tokens 100 ms after the begin, then every 50 and every 100 ms; 5 tokens within 1 s of wall
  // time.
  const BenchFigures figures = figures_of(
      {stream(0, {100, 150, 200}, 200), stream(500, {900, 1000}, 1000)}, 2, {look(0.5), look(1.0)});
  BOOST_TEST(figures.requests == 2U);
  BOOST_TEST(figures.failed == 0U);
  BOOST_TEST(figures.prompt_tokens == 20U);
  BOOST_TEST(figures.generated_tokens == 5U);
  BOOST_TEST((figures.wall == Duration{1s}));
  BOOST_TEST(figures.tokens_per_second == 5.0);
  BOOST_TEST(figures.stream_tokens_per_second == (20.0 + 10.0) / 2);
  BOOST_TEST((figures.first_token_p50 == Duration{100ms}));
  BOOST_TEST((figures.first_token_p99 == Duration{400ms}));
  BOOST_TEST((figures.token_p50 == Duration{50ms}));
  BOOST_TEST((figures.token_p99 == Duration{100ms}));
  BOOST_REQUIRE(figures.stages.size() == 1U);
  BOOST_TEST(figures.stages[0].busy_fraction == 0.75);
  BOOST_TEST(bench_json(figures)["stages"][0]["idle_fraction"] == 0.25);
}

BOOST_AUTO_TEST_CASE(count_failures_apart_and_keep_the_first_reason) {
  StreamRecord failed = stream(0, {50}, 60);
  failed.error = "unavailable: no nodes";
  const BenchFigures figures = figures_of({failed, stream(0, {100}, 100)}, 2, {});
  BOOST_TEST(figures.failed == 1U);
  BOOST_TEST(figures.generated_tokens == 1U);
  BOOST_TEST(figures.first_error == "unavailable: no nodes");
  BOOST_TEST(bench_text(figures).find("1 of 2 requests failed; the first: unavailable: no nodes") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(of_nothing_are_zero) {
  const BenchFigures figures = figures_of({}, 0, {});
  BOOST_TEST(figures.tokens_per_second == 0);
  BOOST_TEST((figures.token_p99 == Duration{0}));
  BOOST_TEST(figures.stages.empty());
}

BOOST_AUTO_TEST_SUITE_END()

#include "actors/logic/restart.h"

#include <boost/test/unit_test.hpp>

namespace troupe {
namespace {

const RestartBudget kBudget{
    .max_restarts = 3, .window = 10s, .backoff_min = 50ms, .backoff_max = 300ms, .stable = 10s};
const Instant kStart{1h};

Duration delay(const RestartDecision& decision) {
  BOOST_TEST_REQUIRE(std::holds_alternative<Restart>(decision));
  return std::get<Restart>(decision).after;
}

BOOST_AUTO_TEST_SUITE(restart)

BOOST_AUTO_TEST_CASE(backs_off_twice_as_long_each_time_up_to_a_limit) {
  RestartPolicy policy(kBudget);
  // Far enough apart for the intensity, but it never ran for long.
  for (const auto& [at, after] : {std::pair<Duration, Duration>{0s, 0ms},
                                  {4s, 50ms},
                                  {8s, 100ms},
                                  {12s, 200ms},
                                  {16s, 300ms},
                                  {20s, 300ms}}) {
    BOOST_TEST((delay(policy.on_failure(kStart + at)) == after));
    policy.on_success(kStart + at + 1s);
  }
  BOOST_TEST(policy.failures() == 6U);
}

BOOST_AUTO_TEST_CASE(gives_up_beyond_the_intensity) {
  RestartPolicy policy(kBudget);
  for (int failure = 0; failure < 3; ++failure) delay(policy.on_failure(kStart + failure * 1s));
  const RestartDecision last = policy.on_failure(kStart + 10s);
  BOOST_TEST_REQUIRE(std::holds_alternative<GiveUp>(last));
  BOOST_TEST(std::get<GiveUp>(last).why == "failed 4 times within 10.0 s, allowed are 3 restarts");
  BOOST_TEST(std::holds_alternative<GiveUp>(policy.on_failure(kStart + 10s)));
  // The first ones have left the window by now.
  BOOST_TEST(std::holds_alternative<Restart>(policy.on_failure(kStart + 30s)));
}

BOOST_AUTO_TEST_CASE(failures_far_apart_are_forgiven_for_ever) {
  RestartPolicy policy(kBudget);
  for (int failure = 0; failure < 100; ++failure) {
    const Instant at = kStart + failure * 12s;
    BOOST_TEST((delay(policy.on_failure(at)) == 0ms));
    policy.on_success(at + 1s);  // runs for 11 s
  }
}

BOOST_AUTO_TEST_CASE(success_must_last_to_count) {
  RestartPolicy policy(kBudget);
  delay(policy.on_failure(kStart));
  policy.on_success(kStart + 1s);
  policy.on_success(kStart + 11s);
  BOOST_TEST((delay(policy.on_failure(kStart + 11s)) == 50ms));
  policy.on_success(kStart + 12s);
  policy.on_success(kStart + 22s + 1ms);
  BOOST_TEST((delay(policy.on_failure(kStart + 22s + 1ms)) == 0ms));
}

BOOST_AUTO_TEST_CASE(no_budget_means_no_restart) {
  RestartPolicy policy({.max_restarts = 0});
  BOOST_TEST(std::holds_alternative<GiveUp>(policy.on_failure(kStart)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

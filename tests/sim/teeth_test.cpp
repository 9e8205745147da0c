// A simulator that finds nothing proves nothing: each planted bug must be found within so many
// seeds, and the same seeds find nothing without it (sim_seeds).
#include <boost/test/unit_test.hpp>

#include <string>

#include "base/log.h"
#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

struct Quiet {
  Quiet() { (void)start_logging({.level = LogLevel::kOff, .file = {}, .name = "sim"}); }
};

const std::string kHeadBreaks = "1500 crash 0 60";

struct Found {
  uint64_t seed = 0;  // 0: not found
  std::string failure;
};

// What the seed draws, and more.
std::vector<Fault> faults_of(uint64_t seed, const std::string& more) {
  std::vector<Fault> faults = draw_faults(seed);
  for (const Fault& fault : from_text(more)) faults.push_back(fault);
  return faults;
}

// The first run that breaks the promise. Others may fail in other ways before: standbys that check
// notice some of these bugs themselves.
Found first_failure(Plant plant, uint64_t seeds, const std::string& more,
                    const std::string& promise = "") {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcome outcome = run_scenario(seed, faults_of(seed, more), {.plant = plant});
    if (!outcome.failure.empty() && outcome.failure.find(promise) != std::string::npos)
      return {seed, outcome.failure};
  }
  return {};
}

// `promise`: what the failure's text has in it. `more`: a fault of every run that the bug needs and
// few seeds draw.
void must_find(Plant plant, uint64_t seeds, const std::string& promise,
               const std::string& more = "") {
  const Found found = first_failure(plant, seeds, more, promise);
  BOOST_TEST_CONTEXT(to_string(plant) << ", seed " << found.seed << ": " << found.failure) {
    BOOST_TEST(found.seed != 0U);
  }
}

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(Quiet);
BOOST_AUTO_TEST_SUITE(sim_teeth)

BOOST_AUTO_TEST_CASE(finds_arithmetic_that_depends_on_the_batch) {
  must_find(Plant::kBatchVariant, 5, "I1");
}
BOOST_AUTO_TEST_CASE(finds_a_standby_that_does_not_store_what_it_was_sent) {
  must_find(Plant::kWrongStandby, 100, "I1");
}
// Nothing is lost by it: whoever takes a seat says itself what it has. So only the checker of I7
// sees it.
BOOST_AUTO_TEST_CASE(finds_a_watermark_that_is_off_by_one) {
  must_find(Plant::kWatermark, 5, "I7");
}
BOOST_AUTO_TEST_CASE(finds_rows_acknowledged_before_they_are_applied) {
  must_find(Plant::kEarlyAck, 100, "I1");
}
BOOST_AUTO_TEST_CASE(finds_a_zombie_that_is_believed) {
  must_find(Plant::kZombie, 200, "I2");
}
BOOST_AUTO_TEST_CASE(finds_retries_at_the_node_that_refused) {
  must_find(Plant::kTriedNode, 200, "again and again", "200 sick 1 6000; 700 crash 1 100");
}
BOOST_AUTO_TEST_CASE(finds_rows_appended_without_a_look_at_their_positions) {
  must_find(Plant::kNoPositions, 20, "I1");
}
BOOST_AUTO_TEST_CASE(finds_draws_that_are_counted) {
  must_find(Plant::kDrawCount, 5, "I1");
}
BOOST_AUTO_TEST_CASE(finds_sequences_kept_for_another_batcher) {
  must_find(Plant::kKeptOverReset, 200, "I1", kHeadBreaks);
}
BOOST_AUTO_TEST_CASE(finds_frames_of_old_views_that_count) {
  must_find(Plant::kNoViewFence, 100, "I2");
}
BOOST_AUTO_TEST_CASE(finds_a_digest_that_nobody_checks) {
  must_find(Plant::kNoDigest, 5, "I2");
}
BOOST_AUTO_TEST_CASE(finds_a_ledger_that_takes_any_swap) {
  must_find(Plant::kAnySwap, 100, "in force");
}
BOOST_AUTO_TEST_CASE(finds_tokens_shown_before_their_record) {
  must_find(Plant::kEarlyRecord, 5, "I4");
}
BOOST_AUTO_TEST_CASE(finds_a_cursor_that_is_off_by_one) {
  must_find(Plant::kCursor, 50, "I9");
}

// A journal that is gone although it is said to be whole costs a refusal and then a longer way: its
// rows are computed again, in the end from the token log. So this is no bug that anybody could
// find.
BOOST_AUTO_TEST_CASE(a_journal_freed_at_send_costs_time_and_nothing_else) {
  uint64_t replays = 0, refusals = 0, refusals_else = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Outcome outcome = run_scenario(seed, draw_faults(seed), {.plant = Plant::kJournalFreed});
    BOOST_TEST(outcome.failure == "");
    replays += outcome.replays;
    refusals += outcome.refusals;
    refusals_else += run_scenario(seed, draw_faults(seed)).refusals;
  }
  BOOST_TEST(replays > 0U);
  BOOST_TEST(refusals > 2 * refusals_else);
}

BOOST_AUTO_TEST_CASE(a_run_is_a_function_of_its_seed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome once = run_scenario(seed, draw_faults(seed));
    const Outcome again = run_scenario(seed, draw_faults(seed));
    BOOST_TEST(once.failure == again.failure);
    BOOST_TEST(once.frames == again.frames);
    BOOST_TEST(once.views == again.views);
    BOOST_TEST(once.recovered_s == again.recovered_s);
  }
}

BOOST_AUTO_TEST_CASE(shrinking_leaves_what_the_failure_needs) {
  const Found found = first_failure(Plant::kKeptOverReset, 200, kHeadBreaks);
  BOOST_REQUIRE(found.seed != 0U);
  const auto drawn = faults_of(found.seed, kHeadBreaks);
  const auto faults = shrink(found.seed, drawn, {.plant = Plant::kKeptOverReset});
  // Another batcher comes only with another head.
  BOOST_TEST(to_text(faults).find("crash 0 ") != std::string::npos);
  BOOST_TEST(!run_scenario(found.seed, faults, {.plant = Plant::kKeptOverReset}).failure.empty());
  BOOST_TEST(faults.size() <= drawn.size());
}

BOOST_AUTO_TEST_CASE(faults_are_the_same_after_a_way_through_text) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const auto faults = draw_faults(seed);
    BOOST_TEST(to_text(from_text(to_text(faults))) == to_text(faults));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::sim

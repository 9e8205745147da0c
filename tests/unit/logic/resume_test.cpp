// Which rows are executed again after a view change, by whom, and where they come from.
#include "actors/logic/resume.h"

#include <boost/test/unit_test.hpp>

#include <deque>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "actors/logic/batching.h"

namespace troupe {

std::ostream& operator<<(std::ostream& out, const Gap& gap) {
  return out << "[" << gap.from << ", " << gap.to << ") by stages " << gap.entry << " to "
             << gap.exit;
}

namespace {

const Instant kNow{1h};

std::optional<Gap> gap(uint32_t fed, std::vector<HeldRange> held) {
  return find_gap(fed, held);
}

uint32_t draw(std::mt19937& random, uint32_t below) {
  return static_cast<uint32_t>(random() % below);
}

BOOST_AUTO_TEST_SUITE(resume)

BOOST_AUTO_TEST_CASE(nothing_is_executed_again_if_every_stage_has_what_was_fed) {
  BOOST_TEST(!gap(10, {{10}, {10}, {10}}).has_value());
  BOOST_TEST(!gap(10, {{12}, {11}, {10}}).has_value());  // ahead: it was in flight
  BOOST_TEST(!gap(0, {{0}, {0}}).has_value());
}

BOOST_AUTO_TEST_CASE(a_lost_stage_takes_its_rows_from_the_journal_before_it) {
  BOOST_TEST(gap(10, {{10, 0, 10}, {0}, {10}}).value() == (Gap{0, 10, 1, 1}));
  BOOST_TEST(gap(10, {{10, 0, 10}, {7}, {10}}).value() == (Gap{7, 10, 1, 1}));
  BOOST_TEST(gap(10, {{11, 0, 11}, {11, 0, 11}, {0}}).value() == (Gap{0, 10, 2, 2}));
}

BOOST_AUTO_TEST_CASE(the_first_stage_has_the_token_log) {
  BOOST_TEST(gap(10, {{4}, {10}, {10}}).value() == (Gap{4, 10, 0, 0}));
}

BOOST_AUTO_TEST_CASE(adjacent_losses_are_filled_by_one_replay) {
  BOOST_TEST(gap(10, {{10, 0, 10}, {5}, {2}, {10}}).value() == (Gap{2, 10, 1, 2}));
  // Not adjacent: the one between re-executes, which changes nothing.
  BOOST_TEST(gap(10, {{10, 0, 10}, {0}, {10, 0, 10}, {3}}).value() == (Gap{0, 10, 1, 3}));
}

BOOST_AUTO_TEST_CASE(a_journal_that_is_too_short_gives_way_to_the_one_before_it) {
  BOOST_TEST(gap(10, {{10, 0, 10}, {10, 1, 10}, {0}}).value() == (Gap{0, 10, 1, 2}));
  BOOST_TEST(gap(10, {{10, 0, 10}, {10, 1, 10}, {1}}).value() == (Gap{1, 10, 2, 2}));
  BOOST_TEST(gap(10, {{10, 0, 9}, {10, 0, 9}, {0}}).value() == (Gap{0, 10, 0, 2}));
  BOOST_TEST(gap(10, {{10}, {10}, {0}}).value() == (Gap{0, 10, 0, 2}));
}

BOOST_AUTO_TEST_CASE(gaps_are_equal_only_in_all_of_their_parts) {
  const Gap gap{2, 10, 1, 2};
  BOOST_TEST(gap == (Gap{2, 10, 1, 2}));
  for (const Gap& other : {Gap{3, 10, 1, 2}, Gap{2, 9, 1, 2}, Gap{2, 10, 0, 2}, Gap{2, 10, 1, 3}})
    BOOST_TEST(gap != other);
}

// A pipeline of stages that hold tokens, for the batcher's side.
class Pipeline {
 public:
  explicit Pipeline(size_t stages) : held_(stages) {}

  std::vector<StageHoldings> held() const { return held_; }
  void lose(size_t stage) { held_[stage].clear(); }
  // True if every stage it passes could run it.
  bool run(const PlannedBatch& batch) {
    const size_t exit = std::min<size_t>(batch.exit, held_.size() - 1);
    for (const PlannedSegment& segment : batch.segments) {
      const auto end = segment.position + static_cast<uint32_t>(segment.tokens.size());
      if (batch.entry > 0) {
        const HeldRange& before = held_[batch.entry - 1][segment.sequence];
        if (before.journal_first > segment.position || before.journal_end < end) return false;
      }
      for (size_t stage = batch.entry; stage <= exit; ++stage) {
        HeldRange& range = held_[stage][segment.sequence];
        if (segment.position > range.length) return false;
        range.length = std::max(range.length, end);
        if (segment.position > range.journal_end) range.journal_first = segment.position;
        range.journal_end = std::max(range.journal_end, end);
      }
    }
    // Only the stages that it passes hear of it.
    for (const SequenceId sequence : batch.released)
      for (size_t stage = batch.entry; stage <= exit; ++stage) held_[stage].erase(sequence);
    return true;
  }

 private:
  std::vector<StageHoldings> held_;
};

BatchRequest request(const std::string& id, uint32_t prompt, uint32_t max_tokens) {
  return {.id = id,
          .prompt = std::vector<uint32_t>(prompt, 7),
          .generated = {},
          .max_tokens = max_tokens,
          .sampling = {},
          .stop_tokens = {}};
}

// Answers a micro-batch: 1, 2, … as tokens where one is sampled.
std::vector<BatchEvent> answer(Batching& batching, const PlannedBatch& batch) {
  std::vector<SampledRow> rows;
  for (const PlannedSegment& segment : batch.segments)
    if (segment.sample) {
      const auto position = segment.position + static_cast<uint32_t>(segment.tokens.size());
      rows.push_back({segment.sequence, position, position + 1, 1});
    }
  return batching.on_sampled(batch.id, rows);
}

uint64_t run(Batching& batching, Pipeline& pipeline, uint32_t micro_batches) {
  uint64_t tokens = 0;
  while (micro_batches-- > 0) {
    const auto batch = batching.next(kNow);
    if (!batch) break;
    BOOST_TEST_REQUIRE(pipeline.run(*batch));
    tokens += answer(batching, *batch).size();
  }
  return tokens;
}

BOOST_AUTO_TEST_CASE(only_what_is_lacking_is_replayed_the_shortest_gap_first) {
  Batching batching({.stages = 3, .in_flight_max = 1, .kv_blocks = 100});
  Pipeline pipeline(3);
  batching.start_view();
  BOOST_TEST(batching.add(request("long", 100, 50)).ok());
  BOOST_TEST(batching.add(request("short", 5, 50)).ok());
  run(batching, pipeline, 12);
  const auto before = batching.figures();
  pipeline.lose(1);
  batching.start_view(pipeline.held());
  // Both gaps enter at the lost stage and end there.
  auto batch = batching.next(kNow);
  BOOST_TEST_REQUIRE(batch.has_value());
  BOOST_TEST(batch->entry == 1U);
  BOOST_TEST(batch->exit == 1U);
  BOOST_TEST_REQUIRE(batch->segments.size() == 2U);
  BOOST_TEST(batch->segments[0].tokens.size() < batch->segments[1].tokens.size());
  BOOST_TEST(batch->segments[1].tokens.size() == 64U);
  for (const PlannedSegment& segment : batch->segments) BOOST_TEST(!segment.sample);
  BOOST_TEST(pipeline.run(*batch));
  BOOST_TEST(answer(batching, *batch).empty());
  // The short one goes on when the long one still catches up.
  batch = batching.next(kNow);
  BOOST_TEST(batch->exit == 1U);
  BOOST_TEST_REQUIRE(batch->segments.size() == 1U);
  BOOST_TEST(pipeline.run(*batch));
  BOOST_TEST(answer(batching, *batch).empty());
  BOOST_TEST(run(batching, pipeline, 1) > 0U);
  const auto after = batching.figures();
  BOOST_TEST(after.rows_replayed - before.rows_replayed > 100U);
  BOOST_TEST(after.prompt_tokens == before.prompt_tokens);
}

BOOST_AUTO_TEST_CASE(any_losses_at_any_time_end_in_the_same_tokens) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Batching batching({.stages = 4, .in_flight_max = 1 + draw(random, 5), .kv_blocks = 40});
    Pipeline pipeline(4);
    batching.start_view();
    for (uint32_t i = 0; i < 5; ++i)
      BOOST_TEST(batching.add(request(std::to_string(i), 1 + draw(random, 150), 30)).ok());
    std::map<RequestId, std::vector<uint32_t>> tokens;
    std::deque<PlannedBatch> out;
    for (uint32_t step = 0; step < 4000 && !batching.requests().empty(); ++step) {
      if (draw(random, 50) == 0) {
        for (size_t stage = 0; stage < 4; ++stage)
          if (draw(random, 3) == 0) pipeline.lose(stage);
        out.clear();
        batching.start_view(pipeline.held());
      }
      while (auto batch = batching.next(kNow)) out.push_back(*batch);
      if (out.empty()) continue;
      const PlannedBatch batch = out.front();
      out.pop_front();
      BOOST_TEST_REQUIRE(pipeline.run(batch), "seed " << seed << " step " << step);
      for (const BatchEvent& event : answer(batching, batch))
        if (event.token) tokens[event.id].push_back(*event.token);
    }
    BOOST_TEST(batching.requests().empty(), "seed " << seed);
    BOOST_TEST(tokens.size() == 5U);
    for (const auto& [id, sequence] : tokens) {
      BOOST_TEST(sequence.size() == 30U, "seed " << seed);
      for (size_t i = 1; i < sequence.size(); ++i) BOOST_TEST(sequence[i] == sequence[i - 1] + 1);
    }
    // What nobody runs is forgotten everywhere.
    while (auto batch = batching.next(kNow)) BOOST_TEST(pipeline.run(*batch));
    for (const StageHoldings& stage : pipeline.held()) BOOST_TEST(stage.empty(), "seed " << seed);
  }
}

BOOST_AUTO_TEST_CASE(a_replay_releases_nothing_because_not_every_stage_hears_of_it) {
  Batching batching({.stages = 3, .in_flight_max = 1, .kv_blocks = 100});
  Pipeline pipeline(3);
  batching.start_view();
  for (const char* id : {"short", "long"})
    BOOST_TEST(batching.add(request(id, 20, id[0] == 's' ? 1 : 30)).ok());
  run(batching, pipeline, 1);
  // "short" has ended, and the stages have not heard of that when one of them is lost.
  pipeline.lose(1);
  batching.start_view(pipeline.held());
  const auto replay = batching.next(kNow);
  BOOST_TEST_REQUIRE(replay.has_value());
  BOOST_TEST(replay->entry == 1U);
  BOOST_TEST(replay->exit == 1U);
  BOOST_TEST(replay->released.empty());
  BOOST_TEST(pipeline.run(*replay));
  answer(batching, *replay);
  const auto after = batching.next(kNow);
  BOOST_TEST_REQUIRE(after.has_value());
  BOOST_TEST(after->released.size() == 1U);
  BOOST_TEST(pipeline.run(*after));
  for (const StageHoldings& stage : pipeline.held()) BOOST_TEST(stage.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_refused_replay_starts_again_from_the_token_log) {
  Batching batching({.stages = 2, .in_flight_max = 1, .kv_blocks = 100});
  Pipeline pipeline(2);
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 20, 5)).ok());
  run(batching, pipeline, 3);
  pipeline.lose(1);
  batching.start_view(pipeline.held());
  auto batch = batching.next(kNow);
  BOOST_TEST(batch->entry == 1U);
  BOOST_TEST(batching.on_refused(batch->id, "the journal does not hold these rows").empty());
  batch = batching.next(kNow);
  BOOST_TEST(batch->entry == 0U);
  BOOST_TEST(batch->exit == kToTheEnd);
  BOOST_TEST(batch->segments[0].position == 0U);
  BOOST_TEST(pipeline.run(*batch));
}

// A request that crashes a stage whenever it gets to run.
BOOST_AUTO_TEST_CASE(a_poison_request_is_quarantined_and_its_neighbours_never_notice) {
  Batching batching({.stages = 2, .in_flight_max = 3, .kv_blocks = 100});
  Pipeline pipeline(2);
  batching.start_view();
  for (const char* id : {"a", "b"}) BOOST_TEST(batching.add(request(id, 10, 40)).ok());
  run(batching, pipeline, 4);
  BOOST_TEST(batching.add(request("poison", 12, 5)).ok());
  std::map<RequestId, uint32_t> tokens;
  std::vector<BatchEvent> failed;
  uint32_t crashes = 0;
  std::deque<PlannedBatch> out;
  for (uint32_t step = 0; step < 2000 && !batching.requests().empty(); ++step) {
    while (auto batch = batching.next(kNow)) out.push_back(*batch);
    if (out.empty()) break;
    const PlannedBatch batch = out.front();
    out.pop_front();
    const bool poisoned =
        std::any_of(batch.segments.begin(), batch.segments.end(),
                    [](const PlannedSegment& s) { return s.sample && s.position == 0; }) ||
        std::any_of(batch.segments.begin(), batch.segments.end(),
                    [](const PlannedSegment& s) { return s.tokens.size() == 12; });
    if (poisoned) {
      BOOST_TEST_REQUIRE(++crashes <= Batching::kLossesMax);
      for (BatchEvent& event : batching.on_loss(1, "killed by signal 11"))
        failed.push_back(std::move(event));
      batching.stop_view();
      BOOST_TEST(!batching.next(kNow).has_value());
      pipeline.lose(1);
      out.clear();
      batching.start_view(pipeline.held());
      continue;
    }
    BOOST_TEST_REQUIRE(pipeline.run(batch));
    for (const BatchEvent& event : answer(batching, batch))
      if (event.token) ++tokens[event.id];
  }
  BOOST_TEST(crashes == Batching::kLossesMax);
  BOOST_TEST_REQUIRE(failed.size() == 1U);
  BOOST_TEST(failed[0].id == "poison");
  BOOST_TEST((failed[0].finish == FinishReason::kFailed));
  BOOST_TEST(failed[0].failure ==
             "quarantined: stage 1 was lost 3 times in a row while it ran; the last time: killed "
             "by signal 11");
  BOOST_TEST(batching.requests().empty());
  while (auto batch = batching.next(kNow)) BOOST_TEST(pipeline.run(*batch));
  BOOST_TEST(batching.figures().kv_blocks_used == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

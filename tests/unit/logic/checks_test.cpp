// The `input` policy's decisions: what a stage keeps for its standby, what may be shown, and who
// was wrong.
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <deque>
#include <map>
#include <random>

#include "actors/logic/disputes.h"
#include "actors/logic/input_log.h"
#include "tests/unit/logic/fake_model.h"

namespace troupe {
namespace {

using test::Answer;
using test::FakeModel;
using test::FakeStage;

const Instant kNow{1h};
const FakeModel kModel(1000);
constexpr Incarnation kSeat{10}, kStandby{20};
constexpr CheckedStage kBy{0, kSeat, kStandby};

InputPiece piece(uint64_t sequence, uint32_t position, uint32_t rows) {
  InputPiece made;
  made.sequence = {sequence};
  made.position = position;
  made.rows = rows;
  made.tokens.assign(rows, 1);
  made.outcomes.assign(rows, 2);
  return made;
}

std::string text(const std::vector<InputPiece>& pieces) {
  std::string all;
  for (const InputPiece& one : pieces)
    all += fmt::format("{}{}:{}+{}", all.empty() ? "" : " ", one.sequence.value, one.position,
                       one.rows);
  return all;
}

std::string text(const std::vector<WrongResult>& wrong) {
  std::string all;
  for (const WrongResult& one : wrong) all += fmt::format("{} ", one.life.value);
  return all;
}

BatchRequest request(const std::string& id, uint32_t prompt, uint32_t max_tokens) {
  return {.id = id,
          .prompt = std::vector<uint32_t>(prompt, 7),
          .generated = {},
          .max_tokens = max_tokens,
          .sampling = {.temperature = 0, .top_p = 1, .seed = std::hash<std::string>{}(id)},
          .stop_tokens = {}};
}

// A batcher of one stage whose standby checks it.
struct Checked {
  BatchingLimits limits{.stages = 1, .in_flight_max = 1, .kv_blocks = 100};
  Batching batching{limits};
  FakeStage stage{kModel, 100};
  std::vector<BatchEvent> events;

  Checked() { batching.start_view({}, {kStandby}); }
  // One micro-batch; its first segment's sequence, or none.
  SequenceId step() {
    const auto batch = batching.next(kNow);
    if (!batch) return {};
    take(batching.on_sampled(batch->id, stage.run(*batch).rows));
    return batch->segments.empty() ? SequenceId{} : batch->segments.front().sequence;
  }
  void take(std::vector<BatchEvent> more) { events.insert(events.end(), more.begin(), more.end()); }
  void check(SequenceId sequence, uint32_t position, std::vector<uint64_t> outcomes) {
    const CheckedRows rows{sequence, position, std::move(outcomes)};
    take(batching.on_checked(kBy, {&rows, 1}));
  }
  void dispute(SequenceId sequence, uint32_t position) {
    const CheckedRows rows{sequence, position, {}, true, 111, 222};
    take(batching.on_checked(kBy, {&rows, 1}));
  }
};

BOOST_AUTO_TEST_SUITE(input_log)

BOOST_AUTO_TEST_CASE(gives_pieces_in_order_until_they_are_checked) {
  InputLog log(1 << 20);
  BOOST_TEST(!log.first({1}).has_value());
  log.append(piece(1, 0, 40));
  log.append(piece(2, 0, 20));
  log.append(piece(1, 40, 1));
  log.append(piece(2, 20, 1));
  BOOST_TEST(log.rows() == 62U);
  BOOST_TEST(log.first({2}).value() == 0U);
  BOOST_TEST(text(log.next({}, 64)) == "1:0+40 1:40+1 2:0+20 2:20+1");
  BOOST_TEST(text(log.next({}, 10)) == "1:0+40");  // one piece at least
  BOOST_TEST(text(log.next({}, 61)) == "1:0+40 1:40+1 2:0+20");
  log.checked({1}, 40);
  log.checked({2}, 19);  // not all of the piece
  BOOST_TEST(log.first({1}).value() == 40U);
  BOOST_TEST(text(log.next({{SequenceId{1}, 40}}, 64)) == "1:40+1 2:0+20 2:20+1");
  // What the standby cannot execute yet waits for rows of the KV cache.
  BOOST_TEST(text(log.next({{SequenceId{1}, 39}}, 64)) == "2:0+20 2:20+1");
  log.forget({2});
  BOOST_TEST(text(log.next({{SequenceId{1}, 41}}, 64)) == "1:40+1");
  log.clear();
  BOOST_TEST(log.rows() == 0U);
  BOOST_TEST(log.bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(rows_that_are_executed_again_are_kept_once) {
  InputLog log(1 << 20);
  log.append(piece(1, 0, 10));
  log.append(piece(1, 0, 10));
  log.append(piece(1, 3, 4));
  log.append(piece(1, 8, 4));  // partly new
  BOOST_TEST(text(log.next({}, 64)) == "1:0+10 1:8+4");
}

BOOST_AUTO_TEST_CASE(a_sequence_whose_blocks_another_one_has_is_over) {
  InputLog log(1 << 20);
  InputPiece old = piece(1, 0, 10), other = piece(2, 0, 5), fresh = piece(3, 0, 7);
  old.blocks = {4, 5};
  other.blocks = {6};
  fresh.blocks = {5};
  log.append(old);
  log.append(other);
  log.append(fresh);  // the micro-batch that says 1 is released did not come by here
  BOOST_TEST(text(log.next({}, 64)) == "2:0+5 3:0+7");
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_gives_way_by_sequences) {
  const size_t one = piece(1, 0, 10).bytes();
  InputLog log(3 * one);
  log.append(piece(1, 0, 10));
  log.append(piece(2, 0, 10));
  log.append(piece(1, 10, 10));
  log.append(piece(2, 10, 10));
  BOOST_TEST(text(log.next({}, 64)) == "2:0+10 2:10+10");
  BOOST_TEST(log.gave_up({1}));
  BOOST_TEST(!log.gave_up({2}));
  log.forget({1});
  BOOST_TEST(!log.gave_up({1}));
  InputLog tiny(1);
  tiny.append(piece(1, 0, 10));
  BOOST_TEST(text(tiny.next({}, 64)) == "1:0+10");  // the newest stays
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(disputes)

Dispute dispute(uint64_t seat_outcome, uint64_t standby_outcome, Incarnation seat = kSeat,
                Incarnation standby = kStandby) {
  return {.stage = 1,
          .request = "r",
          .position = 7,
          .seat = seat,
          .standby = standby,
          .seat_outcome = seat_outcome,
          .standby_outcome = standby_outcome};
}

BOOST_AUTO_TEST_CASE(the_third_execution_decides) {
  for (const auto& [outcome, wrong] :
       std::map<uint64_t, std::string>{{1, "20 "}, {2, "10 "}, {3, "10 20 "}}) {
    Disputes open;
    BOOST_TEST(text(open.on_dispute(dispute(1, 2))) == "");
    BOOST_TEST(text(open.on_agreed(1, "r", 6, outcome)) == "");  // another row
    BOOST_TEST(text(open.on_agreed(0, "r", 7, outcome)) == "");  // another stage
    BOOST_TEST(text(open.on_agreed(1, "s", 7, outcome)) == "");  // another request
    BOOST_TEST(text(open.on_agreed(1, "r", 7, 0)) == "");        // nothing came out this time
    BOOST_TEST(text(open.on_agreed(1, "r", 7, outcome)) == wrong);
    BOOST_TEST(open.empty());
  }
}

BOOST_AUTO_TEST_CASE(two_that_disagree_again_are_both_named) {
  Disputes open;
  BOOST_TEST(text(open.on_dispute(dispute(1, 2))) == "");
  BOOST_TEST(text(open.on_dispute(dispute(1, 2))) == "10 20 ");
  BOOST_TEST(open.empty());
}

BOOST_AUTO_TEST_CASE(another_life_that_says_the_same_as_one_decides_against_the_other) {
  Disputes open;
  open.on_dispute(dispute(1, 2));
  BOOST_TEST(text(open.on_dispute(dispute(1, 2, kSeat, {30}))) == "10 ");
  open.on_dispute(dispute(1, 2));
  BOOST_TEST(text(open.on_dispute(dispute(1, 2, {30}, kStandby))) == "20 ");
  open.on_dispute(dispute(1, 2));
  BOOST_TEST(text(open.on_dispute(dispute(3, 4, {30}, {40}))) == "");  // nobody of before
  BOOST_TEST(text(open.on_agreed(1, "r", 7, 3)) == "40 ");
}

BOOST_AUTO_TEST_CASE(a_request_that_ends_leaves_both_in_doubt) {
  Disputes open;
  open.on_dispute(dispute(1, 2));
  BOOST_TEST(text(open.on_end("s")) == "");
  BOOST_TEST(text(open.on_end("r")) == "10 20 ");
  BOOST_TEST(text(open.on_end("r")) == "");
}

BOOST_AUTO_TEST_CASE(they_are_bounded) {
  Disputes open;
  for (uint32_t i = 0; i < Disputes::kOpenMax; ++i) {
    Dispute one = dispute(1, 2);
    one.position = i;
    BOOST_TEST_REQUIRE(text(open.on_dispute(one)) == "");
  }
  Dispute last = dispute(1, 2);
  last.position = 100000;
  BOOST_TEST(text(open.on_dispute(last)) == "10 20 ");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(batching_checks, Checked)

BOOST_AUTO_TEST_CASE(a_token_is_shown_when_everything_before_it_is_checked) {
  BOOST_TEST(batching.add(request("a", 10, 3)).ok());
  const SequenceId a = step();
  step();
  step();
  BOOST_TEST(events.empty());
  BOOST_TEST(batching.generated("a").value().empty());
  check(a, 0, std::vector<uint64_t>(9, 1));
  BOOST_TEST(events.empty());
  check(a, 9, {1});
  BOOST_TEST(events.size() == 1U);
  BOOST_TEST(batching.generated("a").value().size() == 1U);
  check(a, 10, {1, 1});
  BOOST_TEST_REQUIRE(events.size() == 3U);
  BOOST_TEST((events.back().finish == FinishReason::kLength));
  BOOST_TEST(batching.figures().running == 0U);
  BOOST_TEST(batching.figures().rows_checked == 12U);
  const auto expected =
      kModel.generate(std::vector<uint32_t>(10, 7), std::hash<std::string>{}("a"), 3, {});
  for (uint32_t i = 0; i < 3; ++i) BOOST_TEST(events[i].token.value() == expected[i]);
}

BOOST_AUTO_TEST_CASE(nobody_else_may_say_so) {
  BOOST_TEST(batching.add(request("a", 10, 3)).ok());
  const SequenceId a = step();
  const CheckedRows rows{a, 0, std::vector<uint64_t>(10, 1)};
  take(batching.on_checked({0, kSeat, {99}}, {&rows, 1}));
  take(batching.on_checked({1, kSeat, kStandby}, {&rows, 1}));
  const CheckedRows unknown{{77}, 0, std::vector<uint64_t>(10, 1)};
  take(batching.on_checked(kBy, {&unknown, 1}));
  BOOST_TEST(events.empty());
}

BOOST_AUTO_TEST_CASE(what_waits_for_a_standby_that_is_gone_is_shown) {
  BOOST_TEST(batching.add(request("a", 10, 3)).ok());
  for (int i = 0; i < 3; ++i) step();
  take(batching.start_view({}, {}));
  BOOST_TEST(events.size() == 3U);
  BOOST_TEST((events.back().finish == FinishReason::kLength));
  BOOST_TEST(batching.requests().empty());
}

BOOST_AUTO_TEST_CASE(a_standby_that_came_later_holds_back_from_where_it_has_caught_up) {
  batching.start_view({}, {});
  stage.reset();
  BOOST_TEST(batching.add(request("a", 10, 5)).ok());
  const SequenceId a = step();
  BOOST_TEST(events.size() == 1U);
  batching.start_view({}, {kStandby});
  stage.reset();
  step();  // fed again, with the token that is known
  BOOST_TEST(events.size() == 2U);
  check(a, 5, {1});
  step();
  BOOST_TEST(events.size() == 3U);
  check(a, 11, {1});  // all that was fed
  step();
  BOOST_TEST(events.size() == 3U);
  check(a, 12, {1});
  BOOST_TEST(events.size() == 4U);
}

BOOST_AUTO_TEST_CASE(it_does_not_run_away_from_who_checks_it) {
  limits.unchecked_max = 20;
  batching = Batching(limits);
  batching.start_view({}, {kStandby});
  BOOST_TEST(batching.add(request("a", 10, 100)).ok());
  SequenceId a = step();
  int steps = 1;
  for (; step(); ++steps) {
  }
  BOOST_TEST(steps == 11);
  check(a, 0, std::vector<uint64_t>(5, 1));
  for (; step(); ++steps) {
  }
  BOOST_TEST(steps == 16);
  BOOST_TEST(events.empty());
}

BOOST_AUTO_TEST_CASE(a_dispute_starts_it_anew_from_what_was_shown) {
  BOOST_TEST(batching.add(request("a", 10, 4)).ok());
  const SequenceId a = step();
  step();
  check(a, 0, std::vector<uint64_t>(10, 1));
  BOOST_TEST(events.size() == 1U);
  dispute(a, 10);
  BOOST_TEST(batching.figures().disputes == 1U);
  BOOST_TEST(batching.generated("a").value().size() == 1U);
  check(a, 10, {1, 1});  // of the old id: nobody listens
  BOOST_TEST(events.size() == 1U);
  const SequenceId again = step();
  BOOST_TEST((again != a));
  check(again, 0, std::vector<uint64_t>(10, 1));
  BOOST_TEST(events.size() == 1U);
  check(again, 10, {222});
  BOOST_TEST(text(batching.take_wrong()) == "10 ");
  BOOST_TEST(events.size() == 2U);
  while (step()) {
  }
  check(again, 11, {1, 1});
  BOOST_TEST_REQUIRE(events.size() == 4U);
  const auto expected =
      kModel.generate(std::vector<uint32_t>(10, 7), std::hash<std::string>{}("a"), 4, {});
  for (uint32_t i = 0; i < 4; ++i) BOOST_TEST(events[i].token.value() == expected[i]);
}

BOOST_AUTO_TEST_CASE(what_is_in_flight_in_a_dispute_counts_for_nothing) {
  BOOST_TEST(batching.add(request("a", 10, 4)).ok());
  const SequenceId a = step();
  const auto batch = batching.next(kNow);
  BOOST_TEST_REQUIRE(batch.has_value());
  dispute(a, 3);
  check(a, 0, std::vector<uint64_t>(11, 1));
  take(batching.on_sampled(batch->id, stage.run(*batch).rows));
  BOOST_TEST(events.empty());
  const SequenceId again = step();
  BOOST_TEST((again != a));
  check(again, 0, std::vector<uint64_t>(10, 1));
  BOOST_TEST(events.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_dispute_about_what_was_shown_ends_the_request_honestly) {
  batching.start_view({}, {});
  BOOST_TEST(batching.add(request("a", 10, 9)).ok());
  SequenceId a = step();
  step();
  step();
  batching.start_view({}, {kStandby});
  dispute(a, 4);
  BOOST_TEST((events.back().finish == FinishReason::kFailed));
  BOOST_TEST(events.back().failure.find("were shown") != std::string::npos);
  BOOST_TEST(text(batching.take_wrong()) == "10 20 ");
  BOOST_TEST(batching.requests().empty());
}

BOOST_AUTO_TEST_CASE(what_was_agreed_on_before_is_not_in_doubt_when_it_is_computed_again) {
  BOOST_TEST(batching.add(request("a", 10, 9)).ok());
  const SequenceId a = step();
  step();
  step();
  check(a, 0, std::vector<uint64_t>(12, 1));
  BOOST_TEST(events.size() == 3U);
  dispute(a, 12);
  const SequenceId again = step();
  dispute(again, 4);
  BOOST_TEST(events.size() == 3U);
  BOOST_TEST(batching.requests().size() == 1U);
}

BOOST_AUTO_TEST_CASE(disputes_without_end_end_the_request) {
  BOOST_TEST(batching.add(request("a", 10, 9)).ok());
  for (uint32_t i = 0; i < Batching::kDisputesMax; ++i) {
    BOOST_TEST(events.empty());
    dispute(step(), 2);
  }
  BOOST_TEST_REQUIRE(events.size() == 1U);
  BOOST_TEST((events[0].finish == FinishReason::kFailed));
  BOOST_TEST(batching.figures().kv_blocks_used == 0U);
}

BOOST_AUTO_TEST_CASE(a_cancelled_one_that_waits_for_checks_is_gone) {
  BOOST_TEST(batching.add(request("a", 10, 3)).ok());
  for (int i = 0; i < 3; ++i) step();
  const auto event = batching.cancel("a");
  BOOST_TEST_REQUIRE(event.has_value());
  BOOST_TEST(event->index == 0U);
  BOOST_TEST(batching.figures().running == 0U);
}

// Many requests, a standby that lags, forgets its last words and says them again, disputes at
// random, too few KV blocks: what is shown is right, each token once, and everything ends.
BOOST_AUTO_TEST_CASE(whatever_the_standby_says_what_is_shown_is_right) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto upto = [&](uint64_t limit) { return static_cast<uint32_t>(random() % limit); };
    Batching batcher({.stages = 1,
                      .in_flight_max = 1 + upto(3),
                      .prefill_chunk_max = 1 + upto(20),
                      .context_max = 300,
                      .kv_blocks = 6 + upto(20),
                      .unchecked_max = 1 + upto(40)});
    FakeStage runs(kModel, 100);
    batcher.start_view({}, {kStandby});
    std::map<RequestId, std::vector<uint32_t>> expected, shown;
    std::map<SequenceId, uint32_t> executed, said;
    std::deque<PlannedBatch> out;
    const auto take_events = [&](const std::vector<BatchEvent>& more) {
      for (const BatchEvent& event : more) {
        BOOST_TEST_REQUIRE((event.finish != FinishReason::kFailed), "seed " << seed);
        BOOST_TEST_REQUIRE(event.index == shown[event.id].size(), "seed " << seed);
        shown[event.id].push_back(event.token.value());
      }
    };
    for (uint32_t r = 0; r < 6; ++r) {
      const std::string id = fmt::format("r{}", r);
      const BatchRequest one = request(id, 1 + upto(60), 1 + upto(40));
      expected[id] = kModel.generate(one.prompt, one.sampling.seed, one.max_tokens, {});
      BOOST_TEST_REQUIRE(batcher.add(one).ok());
    }
    uint32_t disputes = 0;
    for (int i = 0; i < 20000 && !batcher.requests().empty(); ++i) {
      while (auto batch = batcher.next(kNow)) out.push_back(std::move(*batch));
      if (!out.empty() && upto(100) < 70) {
        const PlannedBatch batch = out.front();
        out.pop_front();
        const Answer answer = runs.run(batch);
        BOOST_TEST_REQUIRE(answer.refusal.empty(), "seed " << seed);
        for (const PlannedSegment& segment : batch.segments) {
          uint32_t& end = executed[segment.sequence];
          end = std::max(end, segment.position + static_cast<uint32_t>(segment.tokens.size()));
        }
        take_events(batcher.on_sampled(batch.id, answer.rows));
      }
      std::vector<CheckedRows> words;
      for (const auto& [sequence, end] : executed) {
        if (upto(100) >= 30) continue;
        uint32_t& until = said[sequence];
        const uint32_t from = upto(100) < 20 ? upto(until + 1) : until;  // some of it once more
        until += upto(end - until + 1);
        CheckedRows rows{sequence, from, std::vector<uint64_t>(until - from, 1)};
        if (disputes < 6 && until < end && upto(100) < 3) {
          rows.disputed = true;
          ++disputes;
        }
        words.push_back(std::move(rows));
      }
      take_events(batcher.on_checked(kBy, words));
    }
    for (const auto& [id, tokens] : expected)
      BOOST_TEST_REQUIRE(shown[id] == tokens, "seed " << seed << ", request " << id);
    BOOST_TEST_REQUIRE(batcher.figures().kv_blocks_used == 0U, "seed " << seed);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

// Scenes of the batcher, one rule each. The random ones are in batching_simulation_test.cpp.
#include "actors/logic/batching.h"

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <deque>
#include <map>

#include "tests/unit/logic/fake_model.h"

namespace troupe {
namespace {

using test::Answer;
using test::FakeModel;
using test::FakeStage;

const Instant kNow{1h};
const FakeModel kModel(1000);

BatchingLimits limits(uint32_t stages = 1, uint32_t in_flight_max = 1, uint32_t kv_blocks = 1000) {
  return {.stages = stages, .in_flight_max = in_flight_max, .kv_blocks = kv_blocks};
}

BatchRequest request(const std::string& id, uint32_t prompt, uint32_t max_tokens = 1000) {
  BatchRequest wanted{
      .id = id,
      .prompt = std::vector<uint32_t>(prompt, 7),
      .generated = {},
      .max_tokens = max_tokens,
      .sampling = {.temperature = 0, .top_p = 1, .seed = std::hash<std::string>{}(id)},
      .stop_tokens = {}};
  return wanted;
}

// Rows of each segment: "64 1 1".
std::string shape(const std::optional<PlannedBatch>& batch) {
  if (!batch) return "nothing";
  std::string text;
  for (const PlannedSegment& segment : batch->segments)
    text += fmt::format("{}{}", text.empty() ? "" : " ", segment.tokens.size());
  return text;
}

std::vector<BatchEvent> answer(Batching& batching, FakeStage& stage, const PlannedBatch& batch) {
  const Answer given = stage.run(batch);
  return given.refusal.empty() ? batching.on_sampled(given.id, given.rows)
                               : batching.on_refused(given.id, given.refusal);
}

// Runs one micro-batch at a time until there is nothing to do; all events.
std::vector<BatchEvent> run_all(Batching& batching, FakeStage& stage) {
  std::vector<BatchEvent> events;
  while (const auto batch = batching.next(kNow))
    for (BatchEvent& event : answer(batching, stage, *batch)) events.push_back(std::move(event));
  return events;
}

BOOST_AUTO_TEST_SUITE(batching)

BOOST_AUTO_TEST_CASE(feeds_the_prompt_in_chunks_and_then_one_token_at_a_time) {
  Batching batching(limits());
  FakeStage stage(kModel, 1000);
  BOOST_TEST(batching.add(request("a", 150, 3)).ok());
  BOOST_TEST(shape(batching.next(kNow)) == "nothing");  // no view yet
  batching.start_view();
  std::string shapes;
  std::vector<BatchEvent> events;
  while (const auto batch = batching.next(kNow)) {
    shapes += shape(batch) + (batch->segments.empty()     ? "released"
                              : batch->segments[0].sample ? "! "
                                                          : " ");
    for (const BatchEvent& event : answer(batching, stage, *batch)) events.push_back(event);
  }
  BOOST_TEST(shapes == "64 64 22! 1! 1! released");
  BOOST_TEST_REQUIRE(events.size() == 3U);
  const auto expected =
      kModel.generate(std::vector<uint32_t>(150, 7), std::hash<std::string>{}("a"), 3, {});
  for (uint32_t i = 0; i < 3; ++i) {
    BOOST_TEST(events[i].id == "a");
    BOOST_TEST(events[i].index == i);
    BOOST_TEST(events[i].token.value() == expected[i]);
    BOOST_TEST(events[i].logits_digest != 0U);
    BOOST_TEST(events[i].finish.has_value() == (i == 2));
  }
  BOOST_TEST((events[2].finish == FinishReason::kLength));
  const BatchingFigures figures = batching.figures();
  BOOST_TEST(figures.prompt_tokens == 150U);
  BOOST_TEST(figures.tokens_generated == 3U);
  BOOST_TEST(figures.rows_replayed == 0U);
  BOOST_TEST(figures.micro_batches == 6U);
  BOOST_TEST(figures.kv_blocks_used == 0U);
}

BOOST_AUTO_TEST_CASE(a_prompt_of_one_token_runs_at_once) {
  Batching batching(limits(3, 4));
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 1, 3)).ok());
  BOOST_TEST(shape(batching.next(kNow)) == "1");
}

BOOST_AUTO_TEST_CASE(ends_with_the_context_or_a_stop_token) {
  BatchingLimits small = limits();
  small.context_max = 20;
  Batching batching(small);
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("long", 15)).ok());
  auto events = run_all(batching, stage);
  BOOST_TEST(events.size() == 5U);
  BOOST_TEST((events.back().finish == FinishReason::kLength));

  BatchRequest stopping = request("stop", 15);
  const auto expected = kModel.generate(stopping.prompt, stopping.sampling.seed, 5, {});
  stopping.stop_tokens = {12345, expected[2]};
  BOOST_TEST(batching.add(stopping).ok());
  events = run_all(batching, stage);
  BOOST_TEST((events.back().finish == FinishReason::kStop));
  BOOST_TEST(events.back().token.value() == expected[2]);
  BOOST_TEST(events.back().index == events.size() - 1);
  BOOST_TEST(events.size() <= 3U);
}

BOOST_AUTO_TEST_CASE(stages_share_the_running_sequences_evenly) {
  for (const uint32_t stages : {1U, 2U, 3U, 4U}) {
    for (const uint32_t sequences : {1U, 4U, 7U, 8U, 16U}) {
      Batching batching(limits(stages, stages + 1));
      FakeStage stage(kModel, 1000);
      batching.start_view();
      for (uint32_t i = 0; i < sequences; ++i)
        BOOST_TEST(batching.add(request(fmt::format("r{}", i), 3 + 50 * i % 170)).ok());
      // A pipeline: answers come back in order, one for each micro-batch that was sent.
      std::deque<PlannedBatch> pipe;
      std::vector<size_t> sizes;
      for (int step = 0; step < 400; ++step) {
        while (auto batch = batching.next(kNow)) {
          pipe.push_back(*batch);
          if (step >= 200) sizes.push_back(batch->segments.size());
        }
        BOOST_TEST_REQUIRE(!pipe.empty());
        BOOST_TEST_REQUIRE(pipe.size() <= stages + 1);
        if (step >= 200)
          BOOST_TEST(pipe.size() == std::min(stages, sequences),
                     stages << " stages, " << sequences << " sequences");
        answer(batching, stage, pipe.front());
        pipe.pop_front();
      }
      // In steady state every micro-batch has a K-th of the sequences, give or take one.
      for (const size_t size : sizes) {
        BOOST_TEST(size <= (sequences + stages - 1) / stages);
        BOOST_TEST(size + 1 >= std::max<size_t>(2, sequences / stages));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nobody_starves_when_fewer_micro_batches_than_stages_may_be_out) {
  Batching batching(limits(4, 2));
  FakeStage stage(kModel, 1000);
  batching.start_view();
  for (int i = 0; i < 8; ++i) BOOST_TEST(batching.add(request(fmt::format("r{}", i), 3)).ok());
  std::deque<PlannedBatch> pipe;
  for (int step = 0; step < 100; ++step) {
    while (auto batch = batching.next(kNow)) pipe.push_back(*batch);
    BOOST_TEST_REQUIRE(pipe.size() <= 2U);
    answer(batching, stage, pipe.front());
    pipe.pop_front();
  }
  for (int i = 0; i < 8; ++i) BOOST_TEST(batching.generated(fmt::format("r{}", i))->size() > 40U);
}

BOOST_AUTO_TEST_CASE(long_prompts_do_not_stop_the_others) {
  Batching batching(limits());
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("reader", 5)).ok());
  answer(batching, stage, *batching.next(kNow));
  for (int i = 0; i < 6; ++i)
    BOOST_TEST(batching.add(request(fmt::format("long{}", i), 1500)).ok());
  // Each micro-batch has the reader's row first, then chunks until 256 rows are full.
  for (int step = 0; step < 20; ++step) {
    const auto batch = batching.next(kNow);
    BOOST_TEST(shape(batch) == "1 64 64 64 63");
    answer(batching, stage, *batch);
  }
  BOOST_TEST(batching.generated("reader")->size() == 21U);
}

BOOST_AUTO_TEST_CASE(starts_in_order_and_does_not_overtake_a_large_one) {
  Batching batching(limits(1, 1, 10));
  FakeStage stage(kModel, 10);
  batching.start_view();
  BOOST_TEST(batching.add(request("first", 64 * 5, 3)).ok());
  BOOST_TEST(batching.add(request("large", 64 * 8, 3)).ok());
  BOOST_TEST(batching.add(request("small", 3, 3)).ok());
  std::string order;
  while (const auto batch = batching.next(kNow)) {
    BOOST_TEST(batching.figures().kv_blocks_used <= 10U);
    for (const BatchEvent& event : answer(batching, stage, *batch))
      if (event.finish) order += event.id + " ";
  }
  // The small one has room beside the first, but the large one was there before it. Then both run
  // together.
  BOOST_TEST(order == "first small large ");
}

BOOST_AUTO_TEST_CASE(one_that_needs_the_whole_pool_gets_it) {
  Batching batching(limits(1, 1, 4));
  FakeStage stage(kModel, 4);
  batching.start_view();
  BOOST_TEST(batching.add(request("small", 10, 30)).ok());
  BOOST_TEST(batching.add(request("whole", 64 * 4, 1)).ok());
  BOOST_TEST(batching.add(request("small2", 10, 30)).ok());
  const auto events = run_all(batching, stage);
  BOOST_TEST(events.size() == 61U);
  const auto refused = batching.add(request("more", 64 * 4, 2));
  BOOST_TEST_REQUIRE(!refused.ok());
  BOOST_TEST((refused.error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST(refused.error().message ==
             "a prompt of 256 tokens and 2 to generate need 5 KV blocks, there are 4 in all");
}

BOOST_AUTO_TEST_CASE(the_youngest_gives_way_when_blocks_run_out) {
  // Three sequences of 63 tokens grow to 3 blocks each; there are 6 blocks in all.
  Batching batching(limits(1, 1, 6));
  FakeStage stage(kModel, 6);
  batching.start_view();
  for (const char* id : {"a", "b", "c"}) BOOST_TEST(batching.add(request(id, 63, 120)).ok());
  std::map<RequestId, std::vector<uint32_t>> tokens;
  std::string order;
  while (const auto batch = batching.next(kNow)) {
    for (const BatchEvent& event : answer(batching, stage, *batch)) {
      tokens[event.id].push_back(event.token.value());
      if (event.finish) order += event.id;
    }
  }
  BOOST_TEST(order == "abc");
  BOOST_TEST(batching.figures().rows_replayed > 0U);
  for (const char* id : {"a", "b", "c"}) {
    const BatchRequest as_was = request(id, 63, 120);
    BOOST_TEST(tokens[id] == kModel.generate(as_was.prompt, as_was.sampling.seed, 120, {}),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(refuses_what_it_can_never_do) {
  BatchingLimits small = limits();
  small.context_max = 100;
  small.queue_max = 2;
  Batching batching(small);
  const auto refusal = [&](const BatchRequest& wanted) {
    const auto added = batching.add(wanted);
    BOOST_TEST_REQUIRE(!added.ok());
    return to_string(added.error());
  };
  BOOST_TEST(refusal(request("a", 0)) ==
             "invalid argument: prompt is empty, at least 1 token is needed");
  BOOST_TEST(refusal(request("a", 100)) ==
             "invalid argument: prompt has 100 tokens, the context holds 100");
  BOOST_TEST(refusal(request("a", 10, 0)) ==
             "invalid argument: 0 tokens are generated already, asked for are at most 0");
  BatchRequest done = request("a", 10, 2);
  done.generated = {1, 2};
  BOOST_TEST(refusal(done).ends_with("2 tokens are generated already, asked for are at most 2"));
  done = request("a", 10, 5);
  done.generated = {1, 2};
  done.stop_tokens = {2};
  BOOST_TEST(refusal(done).ends_with("a stop token is generated already"));
  BOOST_TEST(batching.add(request("a", 10)).ok());
  BOOST_TEST(refusal(request("a", 10)) == "already exists: request a is queued or running already");
  BOOST_TEST(batching.add(request("b", 10)).ok());
  BOOST_TEST(refusal(request("c", 10)) ==
             "resource exhausted: 2 requests wait already, the queue holds 2");
}

BOOST_AUTO_TEST_CASE(a_new_view_replays_the_log_and_goes_on) {
  Batching batching(limits());
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 70, 40)).ok());
  std::vector<BatchEvent> events;
  for (int step = 0; step < 12; ++step)
    for (const BatchEvent& event : answer(batching, stage, *batching.next(kNow)))
      events.push_back(event);
  BOOST_TEST(events.size() == 11U);
  const auto in_flight = batching.next(kNow);
  const Answer late = stage.run(*in_flight);

  batching.stop_view();
  BOOST_TEST(!batching.next(kNow).has_value());
  stage.reset();
  batching.start_view();
  BOOST_TEST(batching.on_sampled(late.id, late.rows).empty());
  const auto replay = batching.next(kNow);
  BOOST_TEST(shape(replay) == "64");
  BOOST_TEST(replay->segments[0].position == 0U);
  BOOST_TEST(!replay->segments[0].sample);
  answer(batching, stage, *replay);
  const auto rest = batching.next(kNow);
  BOOST_TEST(shape(rest) == "17");  // 70 + 11 - 64
  BOOST_TEST(rest->segments[0].sample);
  for (const BatchEvent& event : answer(batching, stage, *rest)) events.push_back(event);
  for (const BatchEvent& event : run_all(batching, stage)) events.push_back(event);
  const BatchRequest as_was = request("a", 70, 40);
  const auto expected = kModel.generate(as_was.prompt, as_was.sampling.seed, 40, {});
  BOOST_TEST_REQUIRE(events.size() == 40U);
  for (uint32_t i = 0; i < 40; ++i) {
    BOOST_TEST(events[i].index == i);
    BOOST_TEST(events[i].token.value() == expected[i]);
  }
  BOOST_TEST(batching.figures().rows_replayed == 81U);
}

BOOST_AUTO_TEST_CASE(cancels_at_once_and_frees_blocks_when_nothing_is_in_flight) {
  Batching batching(limits(1, 2));
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 100)).ok());
  const auto batch = batching.next(kNow);
  const auto event = batching.cancel("a");
  BOOST_TEST_REQUIRE(event.has_value());
  BOOST_TEST((event->finish == FinishReason::kCancelled));
  BOOST_TEST(event->index == 0U);
  BOOST_TEST(!event->token.has_value());
  BOOST_TEST(!batching.cancel("a").has_value());
  BOOST_TEST(!batching.cancel("unknown").has_value());
  BOOST_TEST(!batching.generated("a").has_value());
  BOOST_TEST(batching.figures().kv_blocks_used == 2U);
  BOOST_TEST(batching.add(request("a", 10, 1)).ok());  // the name is free again
  BOOST_TEST(answer(batching, stage, *batch).empty());
  BOOST_TEST(batching.figures().kv_blocks_used == 0U);
  const auto next = batching.next(kNow);
  BOOST_TEST(shape(next) == "10");
  BOOST_TEST_REQUIRE(next->released.size() == 1U);  // stages hear of it with the next micro-batch
  BOOST_TEST((next->released[0] == batch->segments[0].sequence));
}

BOOST_AUTO_TEST_CASE(tells_stages_of_the_last_end_in_a_bare_micro_batch) {
  Batching batching(limits(2, 3));
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 3, 1)).ok());
  answer(batching, stage, *batching.next(kNow));
  const auto bare = batching.next(kNow);
  BOOST_TEST_REQUIRE(bare.has_value());
  BOOST_TEST(bare->segments.empty());
  BOOST_TEST(bare->released.size() == 1U);
  BOOST_TEST(!batching.next(kNow).has_value());
  // It was refused: it is said again.
  BOOST_TEST(batching.on_refused(bare->id, "busy").empty());
  const auto again = batching.next(kNow);
  BOOST_TEST(again->released == bare->released);
  answer(batching, stage, *again);
  BOOST_TEST(stage.sequences() == 0U);
  BOOST_TEST(!batching.next(kNow).has_value());
}

BOOST_AUTO_TEST_CASE(sends_again_what_was_not_answered_in_time) {
  BatchingLimits hasty = limits();
  hasty.reissue_after = 1s;
  Batching batching(hasty);
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 3, 5)).ok());
  const auto batch = batching.next(kNow);
  BOOST_TEST(batching.overdue(kNow + 999ms).empty());
  const auto again = batching.overdue(kNow + 1s);
  BOOST_TEST_REQUIRE(again.size() == 1U);
  BOOST_TEST((again[0].id == batch->id));
  BOOST_TEST(again[0].segments[0].tokens == batch->segments[0].tokens);
  BOOST_TEST(batching.overdue(kNow + 1999ms).empty());
  BOOST_TEST(batching.overdue(kNow + 2s).size() == 1U);
  const Answer given = stage.run(*batch);
  BOOST_TEST(batching.on_sampled(given.id, given.rows).size() == 1U);
  BOOST_TEST(batching.on_sampled(given.id, given.rows).empty());
  BOOST_TEST(batching.overdue(kNow + 1h).empty());
  BOOST_TEST(batching.figures().reissued == 2U);
}

BOOST_AUTO_TEST_CASE(gives_up_a_request_that_is_refused_again_and_again) {
  Batching batching(limits());
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("bad", 100)).ok());
  BOOST_TEST(batching.add(request("good", 100, 5)).ok());
  const auto runs_bad = [&](const PlannedBatch& batch) {
    return std::any_of(batch.segments.begin(), batch.segments.end(), [](const auto& segment) {
      return segment.sampling.seed == std::hash<std::string>{}("bad");
    });
  };
  int refused = 0;
  std::vector<BatchEvent> events;
  while (const auto batch = batching.next(kNow)) {
    refused += runs_bad(*batch);
    for (const BatchEvent& event :
         runs_bad(*batch)
             ? batching.on_refused(batch->id, "stage 1: token 70000 is not in the vocabulary")
             : answer(batching, stage, *batch))
      events.push_back(event);
  }
  BOOST_TEST(refused == 4);  // the first and three more
  // The other one, which shared a micro-batch with it twice, is none the worse.
  BOOST_TEST_REQUIRE(events.size() == 6U);
  for (const BatchEvent& event : events) {
    if (event.id == "good") continue;
    BOOST_TEST((event.finish == FinishReason::kFailed));
    BOOST_TEST(event.failure ==
               "refused 4 times in a row: stage 1: token 70000 is not in the vocabulary");
  }
  BOOST_TEST((events.back().id == "good" && events.back().finish == FinishReason::kLength));
}

BOOST_AUTO_TEST_CASE(an_answer_without_the_token_is_as_good_as_a_refusal) {
  Batching batching(limits());
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 3)).ok());
  std::vector<BatchEvent> events;
  for (int tries = 0; tries < 4; ++tries) {
    BOOST_TEST(events.empty());
    auto batch = batching.next(kNow);
    // From the second refusal on it starts anew under another id: the old one is released first.
    BOOST_TEST((batch->released.empty() == (tries < 2)));
    if (!batch->released.empty()) {
      BOOST_TEST(batching.on_sampled(batch->id, {}).empty());
      batch = batching.next(kNow);
    }
    BOOST_TEST(shape(batch) == "3");
    events = tries % 2 == 0
                 ? batching.on_sampled(batch->id, {})
                 : batching.on_sampled(
                       batch->id, std::vector<SampledRow>{{batch->segments[0].sequence, 9, 1, 1}});
  }
  BOOST_TEST_REQUIRE(events.size() == 1U);
  BOOST_TEST(
      events[0].failure ==
      "refused 4 times in a row: the last stage sent the token of position 9, expected was 3");
}

BOOST_AUTO_TEST_CASE(a_divergence_stops_its_request_alone) {
  Batching batching(limits());
  FakeStage stage(kModel, 1000);
  batching.start_view();
  BOOST_TEST(batching.add(request("a", 3)).ok());
  BOOST_TEST(batching.add(request("b", 3, 2)).ok());
  const auto batch = batching.next(kNow);
  Answer given = stage.run(*batch);
  given.rows[0].position = 1;  // an answer for a position that the log holds, with another token
  given.rows[0].token = 99;
  given.rows[0].logits_digest = 0xABC;
  const auto events = batching.on_sampled(given.id, given.rows);
  BOOST_TEST_REQUIRE(events.size() == 2U);
  BOOST_TEST((events[0].finish == FinishReason::kFailed));
  BOOST_TEST(
      events[0].failure ==
      "divergence at position 1: token 7 (logits 0000000000000000) was known, token 99 (logits "
      "0000000000000abc) came");
  BOOST_TEST(events[1].id == "b");
  BOOST_TEST(!events[1].finish.has_value());
  BOOST_TEST(batching.figures().divergences == 1U);
  BOOST_TEST(run_all(batching, stage).size() == 1U);
}

BOOST_AUTO_TEST_CASE(lists_what_is_queued_and_running) {
  BatchingLimits one = limits();
  one.running_max = 1;
  Batching batching(one);
  batching.start_view();
  for (const char* id : {"b", "a"}) BOOST_TEST(batching.add(request(id, 3)).ok());
  batching.next(kNow);
  BOOST_TEST(batching.figures().running == 1U);
  BOOST_TEST(batching.figures().queued == 1U);
  BOOST_TEST(batching.requests() == (std::vector<RequestId>{"a", "b"}),
             boost::test_tools::per_element());
  BOOST_TEST(batching.generated("a")->empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

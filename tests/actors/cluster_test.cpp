// The life of requests through all actors of a head, in virtual time.
#include <boost/test/unit_test.hpp>

#include "tests/actors/world.h"

namespace troupe::test {
namespace {

GenerateCall call(const std::string& id, uint32_t tokens = 24) {
  GenerateCall generate;
  generate.id = id;
  generate.prompt = "the keeper of the light";
  generate.max_tokens = tokens;
  generate.sampling = {.temperature = 0.7F, .top_p = 0.9F, .seed = 11};
  generate.ignore_end = true;
  return generate;
}

std::shared_ptr<RecordingSink> undisturbed(uint32_t stages = 3) {
  World world({.seed = 1, .stages = stages, .model = tiny_model_path()});
  auto sink = std::make_shared<RecordingSink>();
  world.generate(call("undisturbed"), sink);
  BOOST_REQUIRE(world.run_until_end(*sink));
  return sink;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(actors_cluster)

BOOST_AUTO_TEST_CASE(answers_a_prompt_with_as_many_tokens_as_asked) {
  const auto sink = undisturbed();
  BOOST_REQUIRE_EQUAL(sink->ends.size(), 1U);
  BOOST_TEST(sink->pieces.size() == 24U);
  BOOST_TEST(static_cast<int>(sink->ends[0].reason) == static_cast<int>(FinishReason::kLength));
  for (size_t i = 0; i < sink->pieces.size(); ++i) BOOST_TEST(sink->pieces[i].index == i);
}

BOOST_AUTO_TEST_CASE(the_number_of_stages_changes_no_bit) {
  const auto one = undisturbed(1), three = undisturbed(3), six = undisturbed(6);
  BOOST_TEST(one->digests() == three->digests());
  BOOST_TEST(one->digests() == six->digests());
}

BOOST_AUTO_TEST_CASE(a_stage_that_throws_is_restarted_and_the_answer_does_not_change) {
  const auto expected = undisturbed();
  for (uint32_t stage = 0; stage < 3; ++stage) {
    for (const size_t position : {1U, 7U, 20U}) {
      World world({.seed = 10 * stage + position, .stages = 3, .model = tiny_model_path()});
      auto sink = std::make_shared<RecordingSink>();
      world.generate(call("thrown"), sink);
      BOOST_REQUIRE(world.run_until_pieces(*sink, position));
      const auto refused = world.inject(FaultKind::kThrow, stage);
      BOOST_REQUIRE_MESSAGE(!refused.has_value(), (refused ? refused->message : ""));
      BOOST_REQUIRE(world.run_until_end(*sink));
      BOOST_TEST(sink->ends[0].error.has_value() == false);
      BOOST_TEST(sink->digests() == expected->digests());
      const ClusterStatus status = world.status();
      BOOST_TEST(status.deployments[0].view == 2U);
      BOOST_TEST(status.faults_survived >= 1U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_stage_whose_compute_thread_hangs_gives_no_wrong_token) {
  // In thread isolation nobody can kill a hung thread; what was generated so far stands and nothing
  // false follows.
  const auto expected = undisturbed();
  World world({.seed = 3, .stages = 3, .model = tiny_model_path()});
  auto sink = std::make_shared<RecordingSink>();
  world.generate(call("hung"), sink);
  BOOST_REQUIRE(world.run_until_pieces(*sink, 5));
  BOOST_REQUIRE(!world.inject(FaultKind::kHang, 1).has_value());
  BOOST_TEST(!world.run_until_end(*sink, 5s));
  const auto tokens = sink->tokens(), all = expected->tokens();
  BOOST_TEST(std::equal(tokens.begin(), tokens.end(), all.begin()));
}

BOOST_AUTO_TEST_CASE(many_requests_at_once_equal_each_alone) {
  const auto expected = undisturbed();
  World world({.seed = 5, .stages = 3, .model = tiny_model_path()});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 9; ++i) {
    sinks.push_back(std::make_shared<RecordingSink>());
    world.generate(call("request-" + std::to_string(i)), sinks.back());
  }
  for (const auto& sink : sinks) {
    BOOST_REQUIRE(world.run_until_end(*sink));
    BOOST_TEST(sink->digests() == expected->digests());
  }
  BOOST_TEST(world.status().deployments[0].batcher.kv_blocks_used == 0U);
}

BOOST_AUTO_TEST_CASE(a_client_that_comes_back_gets_exactly_the_rest) {
  const auto expected = undisturbed();
  World world({.seed = 6, .stages = 2, .model = tiny_model_path()});
  auto first = std::make_shared<RecordingSink>();
  world.generate(call("resumed"), first);
  BOOST_REQUIRE(world.run_until_pieces(*first, 8));
  caf::anon_send(world.gateway, DetachSink{"resumed", first.get()});
  world.settle();
  const size_t seen = first->pieces.size();
  auto second = std::make_shared<RecordingSink>();
  GenerateCall again = call("resumed");
  again.after = seen;
  world.generate(again, second);
  BOOST_REQUIRE(world.run_until_end(*second));
  BOOST_TEST(first->ends.empty());
  auto joined = first->digests();
  const auto rest = second->digests();
  joined.insert(joined.end(), rest.begin(), rest.end());
  BOOST_TEST(joined == expected->digests());
}

BOOST_AUTO_TEST_CASE(one_id_for_two_different_requests_is_a_conflict) {
  World world({.seed = 7, .stages = 2, .model = tiny_model_path()});
  auto first = std::make_shared<RecordingSink>(), second = std::make_shared<RecordingSink>();
  world.generate(call("twice"), first);
  GenerateCall other = call("twice");
  other.prompt = "another prompt";
  world.generate(other, second);
  BOOST_REQUIRE(world.run_until_end(*second));
  BOOST_REQUIRE(second->ends[0].error.has_value());
  BOOST_TEST(static_cast<int>(second->ends[0].error->code) ==
             static_cast<int>(ErrorCode::kConflict));
  BOOST_TEST(world.run_until_end(*first));
  BOOST_TEST(!first->ends[0].error.has_value());
}

BOOST_AUTO_TEST_CASE(cancelling_ends_a_request_and_frees_its_blocks) {
  World world({.seed = 8, .stages = 2, .model = tiny_model_path()});
  auto sink = std::make_shared<RecordingSink>();
  world.generate(call("cancelled", 200), sink);
  BOOST_REQUIRE(world.run_until_pieces(*sink, 3));
  caf::anon_send(world.gateway, CancelOrder{"cancelled", [](Result<void>) {}});
  BOOST_REQUIRE(world.run_until_end(*sink));
  BOOST_TEST(static_cast<int>(sink->ends[0].reason) == static_cast<int>(FinishReason::kCancelled));
  world.advance(200ms);
  BOOST_TEST(world.status().deployments[0].batcher.kv_blocks_used == 0U);
}

BOOST_AUTO_TEST_CASE(a_request_nobody_listens_to_is_cancelled_after_its_grace) {
  World world({.seed = 9, .stages = 2, .model = tiny_model_path()});
  // Longer than the grace in virtual time only if it is paused: the view is stopped while we wait.
  auto sink = std::make_shared<RecordingSink>();
  world.generate(call("left", 200), sink);
  BOOST_REQUIRE(world.run_until_pieces(*sink, 3));
  caf::anon_send(world.batcher, StopView{"test", std::nullopt});
  caf::anon_send(world.gateway, DetachSink{"left", sink.get()});
  world.advance(2s);
  auto in_time = std::make_shared<RecordingSink>();
  world.generate(call("left", 200), in_time);
  world.settle();
  BOOST_TEST(in_time->pieces.size() >= 3U);
  BOOST_TEST(in_time->ends.empty());
  caf::anon_send(world.gateway, DetachSink{"left", in_time.get()});
  world.advance(5s);
  auto too_late = std::make_shared<RecordingSink>();
  world.generate(call("left", 200), too_late);
  world.settle();
  BOOST_REQUIRE_EQUAL(too_late->ends.size(), 1U);
  BOOST_TEST(static_cast<int>(too_late->ends[0].reason) ==
             static_cast<int>(FinishReason::kCancelled));
}

BOOST_AUTO_TEST_CASE(bad_requests_are_told_what_was_seen_and_what_is_allowed) {
  World world({.seed = 12, .stages = 2, .model = tiny_model_path()});
  GenerateCall unknown = call("unknown-model");
  unknown.model = "other";
  GenerateCall token = call("bad-token");
  token.prompt.clear();
  token.prompt_tokens = {999'999};
  GenerateCall longer = call("too-long");
  longer.prompt = std::string(4000, 'x');
  const std::vector<std::pair<GenerateCall, std::string>> cases{
      {unknown, "other"}, {token, "999999"}, {longer, "256"}};
  for (const auto& [bad, word] : cases) {
    auto sink = std::make_shared<RecordingSink>();
    world.generate(bad, sink);
    BOOST_REQUIRE(world.run_until_end(*sink));
    BOOST_REQUIRE(sink->ends[0].error.has_value());
    BOOST_TEST(sink->ends[0].error->message.find(word) != std::string::npos,
               sink->ends[0].error->message);
  }
}

BOOST_AUTO_TEST_CASE(faults_are_refused_unless_they_were_allowed) {
  World world({.seed = 13, .stages = 2, .model = tiny_model_path(), .allow_faults = false});
  const auto refused = world.inject(FaultKind::kThrow, 0);
  BOOST_REQUIRE(refused.has_value());
  BOOST_TEST(refused->message.find("--allow-fault-injection") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

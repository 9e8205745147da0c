// What goes over the wire comes back the same; what may not be asked is refused with what was seen
// and allowed.
#include "actors/rpc/wire.h"

#include <capnp/message.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

#include "actors/rpc/validate.h"
#include "tests/unit/rpc/full_status.h"

namespace troupe::rpc {
namespace {

GenerateCall good_call() {
  GenerateCall call;
  call.id = "request-1";
  call.prompt = "hello";
  call.max_tokens = 8;
  return call;
}

GenerateCall round_trip(const GenerateCall& call) {
  capnp::MallocMessageBuilder message;
  auto builder = message.initRoot<schema::GenerateRequest>();
  write(call, builder);
  return read(builder.asReader()).value();
}

BOOST_AUTO_TEST_SUITE(wire)

BOOST_AUTO_TEST_CASE(a_status_survives_the_wire) {
  const ClusterStatus status = test::full_status();
  capnp::MallocMessageBuilder message;
  auto builder = message.initRoot<schema::ClusterStatus>();
  write(status, builder);
  BOOST_TEST(test::flatten(read(builder.asReader())) == test::flatten(status),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_request_survives_the_wire_with_each_kind_of_prompt) {
  GenerateCall call = good_call();
  call.model = "smollm2";
  call.sampling = {0.7F, 0.9F, 0xFEDCBA9876543210U, 40, 0.05F};
  call.ignore_end = true;
  call.after = 3;
  const GenerateCall with_text = round_trip(call);
  BOOST_TEST(with_text.id == call.id);
  BOOST_TEST(with_text.model == call.model);
  BOOST_TEST(with_text.prompt == call.prompt);
  BOOST_TEST(with_text.max_tokens == call.max_tokens);
  BOOST_TEST((with_text.sampling == call.sampling));
  BOOST_TEST(with_text.ignore_end);
  BOOST_TEST(with_text.after == 3U);

  call.prompt.clear();
  call.messages = {{"system", "be brief"}, {"user", "hi"}};
  BOOST_TEST((round_trip(call).messages == call.messages));
  BOOST_TEST(round_trip(call).prompt.empty());

  call.messages.clear();
  call.prompt_tokens = {1, 2, 0xFFFFFFFF};
  BOOST_TEST(round_trip(call).prompt_tokens == call.prompt_tokens,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_drain_and_a_move_survive_the_wire) {
  capnp::MallocMessageBuilder message;
  auto drain = message.initRoot<schema::Session::DrainNodeParams>();
  for (const bool drained : {true, false}) {
    write(DrainCall{"node-2", drained}, drain);
    const auto call = read(drain.asReader()).value();
    BOOST_TEST(call.node == "node-2");
    BOOST_TEST(call.drained == drained);
  }
  auto move = message.initRoot<schema::Session::MoveStageParams>();
  write(MoveCall{"smollm2", 3, "node-1"}, move);
  const auto call = read(move.asReader()).value();
  BOOST_TEST(call.model == "smollm2");
  BOOST_TEST(call.stage == 3U);
  BOOST_TEST(call.node == "node-1");
}

BOOST_AUTO_TEST_CASE(a_drain_or_a_move_that_makes_no_sense_is_refused) {
  const auto refusal = [](const auto& call) {
    const auto verdict = validate(call);
    return verdict.ok() ? std::string() : verdict.error().message;
  };
  BOOST_TEST(refusal(DrainCall{std::string(64, 'n'), true}) == "");
  BOOST_TEST(refusal(DrainCall{"", true}) == "the node id is empty");
  BOOST_TEST(refusal(DrainCall{std::string(65, 'n'), true}) == "a node id of 65 bytes, limit 64");
  BOOST_TEST(refusal(MoveCall{"", 0, "n\n"}) ==
             "the node id holds byte 0x0a at position 1, allowed is printable ASCII without "
             "spaces");
  BOOST_TEST(refusal(MoveCall{std::string(256, 'm'), 4294967295, "n"}) == "");
  BOOST_TEST(refusal(MoveCall{std::string(257, 'm'), 0, "n"}) ==
             "a model name of 257 bytes, limit 256");
  // What comes off the wire is checked the same.
  capnp::MallocMessageBuilder message;
  auto drain = message.initRoot<schema::Session::DrainNodeParams>();
  BOOST_TEST(read(drain.asReader()).error().message == "the node id is empty");
  auto move = message.initRoot<schema::Session::MoveStageParams>();
  BOOST_TEST(read(move.asReader()).error().message == "the node id is empty");
}

BOOST_AUTO_TEST_CASE(every_error_code_survives_the_wire) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    capnp::MallocMessageBuilder message;
    auto builder = message.initRoot<schema::Failure>();
    write(Error{static_cast<ErrorCode>(code), "why"}, builder);
    BOOST_TEST((read(builder.asReader()).code == static_cast<ErrorCode>(code)));
  }
  // The names on both sides mean the same: first, last and two in between.
  BOOST_TEST(static_cast<int>(ErrorCode::kInvalidArgument) ==
             static_cast<int>(schema::FailureCode::INVALID_ARGUMENT));
  BOOST_TEST(static_cast<int>(ErrorCode::kUnavailable) ==
             static_cast<int>(schema::FailureCode::UNAVAILABLE));
  BOOST_TEST(static_cast<int>(ErrorCode::kCancelled) ==
             static_cast<int>(schema::FailureCode::CANCELLED));
  BOOST_TEST(static_cast<int>(ErrorCode::kInternal) ==
             static_cast<int>(schema::FailureCode::INTERNAL));
}

BOOST_AUTO_TEST_CASE(every_state_of_a_standby_survives_the_wire) {
  for (const StandbyState state : {StandbyState::kNone, StandbyState::kLoading,
                                   StandbyState::kFilling, StandbyState::kReady}) {
    ClusterStatus status = test::full_status();
    status.deployments[0].stages[0].standby_state = state;
    capnp::MallocMessageBuilder message;
    auto builder = message.initRoot<schema::ClusterStatus>();
    write(status, builder);
    BOOST_TEST((read(builder.asReader()).deployments[0].stages[0].standby_state == state));
  }
  BOOST_TEST(static_cast<int>(StandbyState::kFilling) ==
             static_cast<int>(schema::StandbyState::FILLING));
}

BOOST_AUTO_TEST_CASE(a_fault_of_an_old_client_has_no_text) {
  capnp::MallocMessageBuilder message;
  auto fault = message.initRoot<schema::Fault>();
  fault.setStage(2);
  fault.setKind(schema::FaultKind::KILL);
  const FaultCall call = read(fault.asReader()).value();
  BOOST_TEST(call.stage == 2U);
  BOOST_TEST((call.kind == FaultKind::kKill));
  BOOST_TEST(call.text == "");
  for (const size_t size : {size_t{64}, size_t{65}}) {
    fault.setText(std::string(size, 'k').c_str());
    BOOST_TEST(read(fault.asReader()).ok() == (size == kFaultTextMax));
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_a_newer_peer_become_the_harmless_neighbour) {
  capnp::MallocMessageBuilder message;
  auto failure = message.initRoot<schema::Failure>();
  failure.setCode(static_cast<schema::FailureCode>(999));
  BOOST_TEST((read(failure.asReader()).code == ErrorCode::kInternal));
  auto end = message.initRoot<schema::GenerateEnd>();
  end.setReason(static_cast<schema::FinishReason>(999));
  BOOST_TEST((read(end.asReader()).reason == FinishReason::kFailed));
  BOOST_TEST(read(end.asReader()).error.has_value());
  auto fault = message.initRoot<schema::Fault>();
  fault.setKind(static_cast<schema::FaultKind>(999));
  BOOST_TEST((read(fault.asReader()).error().code == ErrorCode::kInvalidArgument));
  auto standby = message.initRoot<schema::Session::SetStandbyParams>();
  standby.setPolicy(static_cast<schema::StandbyPolicy>(999));
  BOOST_TEST((read(standby.asReader()).error().code == ErrorCode::kInvalidArgument));
  auto status = message.initRoot<schema::ClusterStatus>();
  auto deployment = status.initDeployments(1)[0];
  deployment.setStandbyPolicy(static_cast<schema::StandbyPolicy>(999));
  deployment.initStages(1)[0].setStandbyState(static_cast<schema::StandbyState>(999));
  const ClusterStatus seen = read(status.asReader());
  BOOST_TEST((seen.deployments[0].standby_policy == StandbyPolicy::kNone));
  BOOST_TEST((seen.deployments[0].stages[0].standby_state == StandbyState::kLoading));
}

struct BadCall {
  const char* name;
  void (*spoil)(GenerateCall&);
  const char* message;  // or its beginning
};

const BadCall kBadCalls[] = {
    {"no id", [](GenerateCall& c) { c.id.clear(); }, "the request id is empty"},
    {"long id", [](GenerateCall& c) { c.id.assign(129, 'x'); },
     "a request id of 129 bytes, limit 128"},
    {"space in id", [](GenerateCall& c) { c.id = "a b"; },
     "the request id holds byte 0x20 at position 1"},
    {"newline in id", [](GenerateCall& c) { c.id = "ab\n"; },
     "the request id holds byte 0x0a at position 2"},
    {"high byte in id", [](GenerateCall& c) { c.id = "\xff"; },
     "the request id holds byte 0xff at position 0"},
    {"long model name", [](GenerateCall& c) { c.model.assign(257, 'm'); },
     "a model name of 257 bytes, limit 256"},
    {"empty prompt", [](GenerateCall& c) { c.prompt.clear(); }, "the prompt is empty"},
    {"two prompts",
     [](GenerateCall& c) {
       c.messages = {{"user", "x"}};
     },
     "2 kinds of prompt"},
    {"three prompts",
     [](GenerateCall& c) {
       c.messages = {{"user", "x"}};
       c.prompt_tokens = {1};
     },
     "3 kinds of prompt"},
    {"large prompt", [](GenerateCall& c) { c.prompt.assign((4U << 20) + 1, 'x'); },
     "a prompt of 4194305 bytes, limit 4194304"},
    {"many tokens",
     [](GenerateCall& c) {
       c.prompt.clear();
       c.prompt_tokens.assign((1U << 20) + 1, 1);
     },
     "a prompt of 1048577 tokens, limit 1048576"},
    {"many messages",
     [](GenerateCall& c) {
       c.prompt.clear();
       c.messages.assign(1025, {"user", "x"});
     },
     "1025 chat messages, limit 1024"},
    {"empty messages",
     [](GenerateCall& c) {
       c.prompt.clear();
       c.messages = {{"user", ""}};
     },
     "the prompt is empty: every chat message is without content"},
    {"large messages",
     [](GenerateCall& c) {
       c.prompt.clear();
       c.messages.assign(2, {"user", std::string(3U << 20, 'x')});
     },
     "chat messages of 6291456 bytes, limit 4194304"},
    {"message without role",
     [](GenerateCall& c) {
       c.prompt.clear();
       c.messages = {{"", "x"}};
     },
     "chat message 0 has no role"},
    {"no tokens wanted", [](GenerateCall& c) { c.max_tokens = 0; }, "max_tokens 0"},
    {"too many tokens wanted", [](GenerateCall& c) { c.max_tokens = 0xFFFFFFFF; },
     "max_tokens 4294967295, limit 1048576"},
    {"cursor beyond the end", [](GenerateCall& c) { c.after = 9; },
     "cursor 9 lies beyond max_tokens 8"},
    {"NaN temperature", [](GenerateCall& c) { c.sampling.temperature = std::nanf(""); },
     "temperature is nan, allowed are 0 (greedy) to 100"},
    {"negative temperature", [](GenerateCall& c) { c.sampling.temperature = -0.5F; },
     "temperature is -0.5, allowed are 0 (greedy) to 100"},
    {"hot temperature", [](GenerateCall& c) { c.sampling.temperature = 101.0F; },
     "temperature is 101, allowed are 0 (greedy) to 100"},
    {"infinite temperature",
     [](GenerateCall& c) { c.sampling.temperature = std::numeric_limits<float>::infinity(); },
     "temperature is inf, allowed are 0 (greedy) to 100"},
    {"top_p of 0", [](GenerateCall& c) { c.sampling.top_p = 0.0F; },
     "top_p is 0, allowed is above 0 and up to 1"},
    {"top_p over 1", [](GenerateCall& c) { c.sampling.top_p = 1.5F; },
     "top_p is 1.5, allowed is above 0 and up to 1"},
    {"NaN top_p", [](GenerateCall& c) { c.sampling.top_p = std::nanf(""); },
     "top_p is nan, allowed is above 0 and up to 1"},
};

BOOST_AUTO_TEST_CASE(a_good_request_is_accepted_up_to_every_limit) {
  BOOST_TEST(validate(good_call()).ok());
  GenerateCall call = good_call();
  call.id.assign(128, '~');
  call.prompt.assign(4U << 20, 'x');
  call.max_tokens = 1U << 20;
  call.after = 1U << 20;
  call.sampling = {100.0F, 1.0F, 1};
  BOOST_TEST(validate(call).ok());
}

BOOST_AUTO_TEST_CASE(every_bad_argument_is_refused_with_what_was_seen_and_allowed) {
  for (const BadCall& bad : kBadCalls) {
    GenerateCall call = good_call();
    bad.spoil(call);
    const auto verdict = validate(call);
    BOOST_TEST_CONTEXT(bad.name) {
      BOOST_REQUIRE(!verdict.ok());
      BOOST_TEST((verdict.error().code == ErrorCode::kInvalidArgument));
      BOOST_TEST(verdict.error().message.substr(0, std::string(bad.message).size()) == bad.message);
    }
  }
}

BOOST_AUTO_TEST_CASE(made_ids_are_valid_and_differ) {
  BOOST_TEST(validate_request_id(make_request_id()).ok());
  BOOST_TEST(make_request_id() != make_request_id());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::rpc

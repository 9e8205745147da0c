#include "actors/logic/admission.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>

namespace troupe {
namespace {

const AdmissionLimits kLimits{
    .context_max = 2048, .max_tokens_max = 1'000'000, .queue_max = 4, .vocabulary = 1000};

AdmissionRequest good() {
  return {.id = "r-1", .prompt_tokens = 5, .token_largest = 999, .max_tokens = 16, .sampling = {}};
}

std::string refusal(const AdmissionRequest& request, ErrorCode code = ErrorCode::kInvalidArgument) {
  const auto outcome = admit(kLimits, request);
  BOOST_TEST_REQUIRE(!outcome.ok());
  BOOST_TEST((outcome.error().code == code));
  return outcome.error().message;
}

BOOST_AUTO_TEST_SUITE(admission)

BOOST_AUTO_TEST_CASE(lets_good_requests_in) {
  AdmissionRequest request = good();
  BOOST_TEST(admit(kLimits, request).ok());
  request.prompt_tokens = 2047;
  request.max_tokens = 0;
  request.sampling = {.temperature = 100.0F, .top_p = 0.01F, .seed = 1};
  const std::string longest(128, '~');
  request.id = longest;
  request.queued = 3;
  BOOST_TEST(admit(kLimits, request).ok());
}

BOOST_AUTO_TEST_CASE(says_how_long_a_prompt_may_be) {
  AdmissionRequest request = good();
  request.prompt_tokens = 5000;
  BOOST_TEST(refusal(request) == "prompt has 5000 tokens, the context holds 2048");
  request.prompt_tokens = 2048;
  BOOST_TEST(refusal(request) ==
             "prompt has 2048 tokens, the context holds 2048 and one must be left to generate");
  request.prompt_tokens = 0;
  BOOST_TEST(refusal(request) == "prompt is empty, at least 1 token is needed");
}

BOOST_AUTO_TEST_CASE(refuses_tokens_the_model_does_not_have) {
  AdmissionRequest request = good();
  request.token_largest = 1000;
  BOOST_TEST(refusal(request) == "prompt has token id 1000, the vocabulary ends at 999");
  AdmissionLimits unknown = kLimits;
  unknown.vocabulary = 0;
  BOOST_TEST(admit(unknown, request).ok());
}

BOOST_AUTO_TEST_CASE(refuses_absurd_sampling_values) {
  for (const float temperature : {-0.1F, 100.5F, std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()}) {
    AdmissionRequest request = good();
    request.sampling.temperature = temperature;
    BOOST_TEST(refusal(request).starts_with("temperature is "));
  }
  for (const float top_p : {0.0F, -1.0F, 1.01F, std::numeric_limits<float>::quiet_NaN()}) {
    AdmissionRequest request = good();
    request.sampling.top_p = top_p;
    BOOST_TEST(refusal(request).starts_with("top_p is "));
  }
}

BOOST_AUTO_TEST_CASE(refuses_ids_that_cannot_be_printed) {
  AdmissionRequest request = good();
  request.id = "";
  BOOST_TEST(refusal(request) == "request id has 0 characters, allowed are 1 to 128");
  const std::string long_id(129, 'x');
  request.id = long_id;
  BOOST_TEST(refusal(request) == "request id has 129 characters, allowed are 1 to 128");
  for (const char* id : {"a b", "a\n", "\x7f", "caf\xc3\xa9"}) {
    request.id = id;
    BOOST_TEST(refusal(request).starts_with("request id has byte 0x"));
  }
  request.id = "a b";
  BOOST_TEST(refusal(request).starts_with("request id has byte 0x20 at offset 1"));
}

BOOST_AUTO_TEST_CASE(shortens_a_large_wish_and_refuses_an_absurd_one) {
  AdmissionRequest request = good();
  BOOST_TEST(max_tokens_granted(kLimits, request) == 16U);
  request.max_tokens = 0;
  BOOST_TEST(max_tokens_granted(kLimits, request) == 2043U);
  request.max_tokens = 2044;
  BOOST_TEST(admit(kLimits, request).ok());
  BOOST_TEST(max_tokens_granted(kLimits, request) == 2043U);
  request.max_tokens = -1;
  BOOST_TEST(refusal(request).starts_with("max_tokens is -1"));
  request.max_tokens = 1'000'001;
  BOOST_TEST(refusal(request).starts_with("max_tokens is 1000001"));
}

BOOST_AUTO_TEST_CASE(refuses_for_now_when_the_queue_is_full) {
  AdmissionRequest request = good();
  request.queued = 4;
  BOOST_TEST(refusal(request, ErrorCode::kResourceExhausted) ==
             "4 requests wait already, the queue holds 4: try again later");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

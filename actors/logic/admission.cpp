#include "actors/logic/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"

namespace troupe {
namespace {

Error refuse(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

Result<void> check_id(std::string_view id) {
  if (id.empty() || id.size() > kRequestIdMax)
    return refuse(
        fmt::format("request id has {} characters, allowed are 1 to {}", id.size(), kRequestIdMax));
  const auto bad = std::find_if(id.begin(), id.end(), [](char c) { return c < '!' || c > '~'; });
  if (bad != id.end())
    return refuse(fmt::format(
        "request id has byte {:#04x} at offset {}, allowed are printable ASCII characters without "
        "spaces",
        static_cast<unsigned char>(*bad), bad - id.begin()));
  return {};
}

Result<void> check_prompt(const AdmissionLimits& limits, const AdmissionRequest& request) {
  if (request.prompt_tokens == 0) return refuse("prompt is empty, at least 1 token is needed");
  if (request.prompt_tokens >= limits.context_max)
    return refuse(fmt::format(
        "prompt has {} tokens, the context holds {}{}", request.prompt_tokens, limits.context_max,
        request.prompt_tokens == limits.context_max ? " and one must be left to generate" : ""));
  if (limits.vocabulary != 0 && request.token_largest >= limits.vocabulary)
    return refuse(fmt::format("prompt has token id {}, the vocabulary ends at {}",
                              request.token_largest, limits.vocabulary - 1));
  return {};
}

}  // namespace

Result<void> admit(const AdmissionLimits& limits, const AdmissionRequest& request) {
  TROUPE_TRY_VOID(check_id(request.id));
  TROUPE_TRY_VOID(check_prompt(limits, request));
  if (request.max_tokens < 0 || request.max_tokens > limits.max_tokens_max)
    return refuse(
        fmt::format("max_tokens is {}, allowed are 0 (as many as the context allows) to {}",
                    request.max_tokens, limits.max_tokens_max));
  TROUPE_TRY_VOID(check_sampling(request.sampling));
  if (request.queued >= limits.queue_max)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} requests wait already, the queue holds {}: try again later",
                             request.queued, limits.queue_max)};
  return {};
}

uint32_t max_tokens_granted(const AdmissionLimits& limits, const AdmissionRequest& request) {
  TROUPE_CHECK(request.prompt_tokens < limits.context_max && request.max_tokens >= 0,
               "only admitted requests are granted tokens");
  const uint64_t room = limits.context_max - request.prompt_tokens;
  const auto wish = static_cast<uint64_t>(request.max_tokens);
  return static_cast<uint32_t>(wish == 0 ? room : std::min(room, wish));
}

}  // namespace troupe

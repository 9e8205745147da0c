// How a token is chosen, and how a request ends. Sampling parameters are part of the request
// record: every field is an input of the function that the token log is.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace troupe {

struct SamplingParameters {
  float temperature = 0.0F;  // [0, 100]; 0 is greedy: the largest logit, ties to the lower token id
  float top_p = 1.0F;        // (0, 1]; the smallest set of likeliest tokens whose mass reaches it
  uint64_t seed = 0;         // of the Philox draws; used only when temperature > 0
  uint32_t top_k = 0;        // only so many of the likeliest tokens; 0: all
  float min_p = 0.0F;        // [0, 1]; only tokens at least so likely, the likeliest being 1
  friend bool operator==(const SamplingParameters&, const SamplingParameters&) = default;
};

// The ranges above. Errors: `code`, naming the field, what it is and what is allowed.
Result<void> check_sampling(const SamplingParameters& parameters,
                            ErrorCode code = ErrorCode::kInvalidArgument);

enum class FinishReason : uint8_t {
  kStop,       // the model said one of its end-of-generation tokens
  kLength,     // max_tokens, or the context's end
  kCancelled,  // somebody asked for it
  kFailed,     // an error says why
};

inline const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace troupe

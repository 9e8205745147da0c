// Whether a request may enter: everything about it that can be judged before any work is done. The
// answer is for the person who sent it, so each refusal says what was seen and what is allowed.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/sampling.h"

namespace troupe {

struct AdmissionLimits {
  uint32_t context_max = 2048;          // positions of a sequence: prompt and generated together
  uint32_t max_tokens_max = 1'000'000;  // a larger wish is a mistake, not a wish
  uint32_t queue_max = 1024;            // requests that wait for room
  uint32_t vocabulary = 0;              // token ids are below it; 0: not checked here
};

struct AdmissionRequest {
  std::string_view id;         // 1 to 128 printable ASCII characters without spaces
  uint64_t prompt_tokens = 0;  // 1 to context_max - 1
  uint32_t token_largest = 0;  // the largest token id of the prompt
  int64_t max_tokens = 0;      // wished for; 0: as many as the context allows
  SamplingParameters sampling;
  uint64_t queued = 0;  // requests that wait already
};

inline constexpr size_t kRequestIdMax = 128;

// Errors: kInvalidArgument (mend the request), kResourceExhausted (the queue is full: try again
// later).
Result<void> admit(const AdmissionLimits& limits, const AdmissionRequest& request);

// How many tokens an admitted request may generate: what it wished for, or what the context leaves
// behind its prompt, whichever is less. A wish that is too large is shortened, not refused: "at
// most 4096" stays true, and the finish reason "length" tells the client. At least 1.
uint32_t max_tokens_granted(const AdmissionLimits& limits, const AdmissionRequest& request);

}  // namespace troupe

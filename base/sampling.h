// How a token is chosen: part of the request record, so every field is a function input of the token log.
#pragma once

#include <cstdint>

namespace troupe {

struct SamplingParameters {
  float temperature = 0.0F;  // [0, 100]; 0 is greedy: the largest logit, ties to the lower token id
  float top_p = 1.0F;        // (0, 1]; the smallest set of likeliest tokens whose mass reaches it
  uint64_t seed = 0;         // of the Philox draws; used only when temperature > 0
  friend bool operator==(const SamplingParameters&, const SamplingParameters&) = default;
};

}  // namespace troupe

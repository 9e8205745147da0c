#include "base/sampling.h"

#include <fmt/format.h>

namespace troupe {

// Written so that NaN fails every test.
Result<void> check_sampling(const SamplingParameters& parameters, ErrorCode code) {
  const auto& [temperature, top_p, seed, top_k, min_p] = parameters;
  if (!(temperature >= 0.0F && temperature <= 100.0F))
    return Error{code,
                 fmt::format("temperature is {}, allowed are 0 (greedy) to 100", temperature)};
  if (!(top_p > 0.0F && top_p <= 1.0F))
    return Error{code, fmt::format("top_p is {}, allowed is above 0 and up to 1", top_p)};
  if (!(min_p >= 0.0F && min_p <= 1.0F))
    return Error{code, fmt::format("min_p is {}, allowed are 0 (off) to 1", min_p)};
  return {};
}

}  // namespace troupe

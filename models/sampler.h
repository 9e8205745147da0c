// Choosing a token from logits: a pure function of (logits, parameters, position), so a token
// sampled again after a failure is the same token (docs/ARCHITECTURE.md, "One arithmetic", rule
// N8).
//
// Greedy (temperature 0): the largest logit; ties go to the lower token id.
// Otherwise, in this order and no other:
//   1. weight[i] = exp((logit[i] - max) / temperature), float32, with the kernels' own exp
//   2. total     = sum of all weights in ascending token id, in double
//   3. candidates in descending logit, ties in ascending token id; mass[k] = sum of the first k
//   weights, in double
//   4. top-p     keep the smallest k with mass[k] >= top_p * total (all of them where rounding
//   never gets there)
//   5. draw      u = Philox(seed, position, draw 0); the first candidate with mass > u * mass of
//   the kept ones
// A logit of -infinity is a token that is never chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sampling.h"

namespace troupe {

// Errors: kInvalidArgument (temperature outside [0, 100], top_p outside (0, 1], or either NaN).
Result<void> check_sampling(const SamplingParameters& parameters);

// Keeps its work memory between calls; holds nothing else. One thread at a time.
class Sampler {
 public:
  // `position` is the sampled token's own. Errors: kInvalidArgument (see check_sampling; no
  // logits), kInvalidFrame (a NaN or +infinity among the logits, or nothing but -infinity: the
  // model or its input is broken).
  Result<uint32_t> sample(std::span<const float> logits, const SamplingParameters& parameters,
                          uint32_t position);

 private:
  struct Candidate {
    float logit = 0.0F;
    uint32_t token = 0;
  };

  uint32_t draw(std::span<const float> logits, float max, const SamplingParameters& parameters,
                uint32_t position);
  void sort_prefix(size_t from, size_t to);

  std::vector<float> weights_;         // by token id
  std::vector<Candidate> candidates_;  // sorted only as far as a call needed
};

}  // namespace troupe

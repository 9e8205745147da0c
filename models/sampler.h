// Choosing a token from logits: a pure function of (logits, parameters, position), so a token
// sampled again after a failure is the same token (docs/ARCHITECTURE.md, "One arithmetic", rule
// N8).
//
// Greedy (temperature 0): the largest logit; ties go to the lower token id.
// Otherwise, in this order and no other:
//   1. weight[i] = exp((logit[i] - max) / temperature), float32, with the kernels' own exp
//   2. candidates in descending logit, ties in ascending token id; mass[k] = sum of the first k
//   weights, in double
//   3. top-k     keep the first top_k; total = mass[top_k], or without top-k the sum of all weights
//   in ascending token id, in double
//   4. top-p     keep the smallest k with mass[k] >= top_p * total (all of them where rounding
//   never gets there)
//   5. min-p     keep those with weight >= min_p (the likeliest weighs 1), at least one
//   6. draw      u = Philox(seed, position, draw 0); the first candidate with mass > u * mass of
//   the kept ones
// A logit of -infinity is a token that is never chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sampling.h"

namespace troupe {

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

  struct Kept {  // of the candidates in their order
    size_t count = 0;
    double mass = 0.0;
  };

  uint32_t draw(std::span<const float> logits, float max, const SamplingParameters& parameters,
                uint32_t position);
  Kept keep(const SamplingParameters& parameters);
  float weight_at(size_t k);  // of candidate k, which is then in its place
  void sort_prefix(size_t from, size_t to);

  std::vector<float> weights_;         // by token id
  std::vector<Candidate> candidates_;  // sorted only as far as a call needed …
  size_t sorted_ = 0;                  // … which is so far
};

}  // namespace troupe

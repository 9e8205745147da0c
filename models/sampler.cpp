#include "models/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/prng.h"
#include "kernels/functions.h"
#include "kernels/scalar_lane.h"

namespace troupe {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Most draws end among the likeliest few, so that many candidates are sorted first, then four times
// as many.
constexpr size_t kSortedFirst = 64;

struct Largest {
  float logit = -kInfinity;
  uint32_t token = 0;
};

// Ties stay with the lower token id, since only a larger logit takes over.
Result<Largest> find_largest(std::span<const float> logits) {
  Largest best;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (std::isnan(logit) || logit == kInfinity)
      return Error{
          ErrorCode::kInvalidFrame,
          fmt::format("the logit of token {} is {}; finite numbers are allowed", i, logit)};
    if (logit > best.logit) best = {logit, static_cast<uint32_t>(i)};
  }
  if (best.logit == -kInfinity)
    return Error{ErrorCode::kInvalidFrame, "every logit is -infinity: no token can be chosen"};
  return best;
}

// The difference first: a tiny temperature then gives 0 or -infinity, never NaN.
[[gnu::always_inline]] inline void weigh(float* weights, std::span<const float> logits, float max,
                                         float temperature) {
  for (size_t i = 0; i < logits.size(); ++i)
    weights[i] = exp_lane(ScalarLane::set((logits[i] - max) / temperature)).value;
}

// The same source twice. Without the instruction every fma is a call of the C library: 2.6 ms for
// 49152 tokens where a whole step of a small model takes 4 ms. fma is exact either way, so the bits
// are the same.
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void weigh_with_fma(float* weights, std::span<const float> logits,
                                                float max, float temperature) {
  weigh(weights, logits, max, temperature);
}
bool has_fma() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
void weigh_with_fma(float* weights, std::span<const float> logits, float max, float temperature) {
  weigh(weights, logits, max, temperature);
}
bool has_fma() {
  return false;
}
#endif

}  // namespace

Result<uint32_t> Sampler::sample(std::span<const float> logits,
                                 const SamplingParameters& parameters, uint32_t position) {
  TROUPE_TRY_VOID(check_sampling(parameters));
  if (logits.empty() || logits.size() > std::numeric_limits<uint32_t>::max())
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} logits; allowed are 1 to {}", logits.size(),
                             std::numeric_limits<uint32_t>::max())};
  TROUPE_TRY(const Largest largest, find_largest(logits));
  if (parameters.temperature == 0.0F) return largest.token;
  return draw(logits, largest.logit, parameters, position);
}

uint32_t Sampler::draw(std::span<const float> logits, float max,
                       const SamplingParameters& parameters, uint32_t position) {
  weights_.resize(logits.size());
  candidates_.resize(logits.size());
  sorted_ = 0;
  if (has_fma()) {
    weigh_with_fma(weights_.data(), logits, max, parameters.temperature);
  } else {
    weigh(weights_.data(), logits, max, parameters.temperature);
  }
  for (size_t i = 0; i < logits.size(); ++i) candidates_[i] = {logits[i], static_cast<uint32_t>(i)};
  const Kept kept = keep(parameters);

  // Rounding may leave the target just out of reach: then the last candidate with any weight is the
  // answer.
  const double target =
      static_cast<double>(philox_uniform(parameters.seed, position, 0)) * kept.mass;
  double mass = 0.0;
  uint32_t token = 0;
  for (size_t k = 0; k < kept.count; ++k) {
    const float weight = weight_at(k);
    if (weight == 0.0F && k > 0) break;  // so are all that follow
    token = candidates_[k].token;
    mass += static_cast<double>(weight);
    if (mass > target) break;
  }
  return token;
}

Sampler::Kept Sampler::keep(const SamplingParameters& parameters) {
  const bool all = parameters.top_k == 0 || parameters.top_k >= candidates_.size();
  Kept kept{all ? candidates_.size() : parameters.top_k, 0.0};
  if (all)
    for (const float weight : weights_) kept.mass += static_cast<double>(weight);
  else
    for (size_t k = 0; k < kept.count; ++k) kept.mass += static_cast<double>(weight_at(k));
  if (parameters.top_p < 1.0F) {
    const double wanted = static_cast<double>(parameters.top_p) * kept.mass;
    const size_t most = std::exchange(kept.count, 0);
    kept.mass = 0.0;
    while (kept.count < most && (kept.count == 0 || kept.mass < wanted))
      kept.mass += static_cast<double>(weight_at(kept.count++));
  }
  if (parameters.min_p > 0.0F) {
    const size_t most = std::exchange(kept.count, 0);
    kept.mass = 0.0;
    while (kept.count < most && (kept.count == 0 || weight_at(kept.count) >= parameters.min_p))
      kept.mass += static_cast<double>(weight_at(kept.count++));
  }
  return kept;
}

float Sampler::weight_at(size_t k) {
  while (sorted_ <= k) {
    const size_t to = std::min(candidates_.size(), std::max(kSortedFirst, sorted_ * 4));
    sort_prefix(sorted_, to);
    sorted_ = to;
  }
  return weights_[candidates_[k].token];
}

void Sampler::sort_prefix(size_t from, size_t to) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const auto begin = candidates_.begin() + static_cast<ptrdiff_t>(from);
  const auto end = candidates_.begin() + static_cast<ptrdiff_t>(to);
  if (end != candidates_.end()) std::nth_element(begin, end, candidates_.end(), before);
  std::sort(begin, end, before);
}

}  // namespace troupe

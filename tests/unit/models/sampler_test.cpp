// Expected tokens are derived by a plain second implementation in this file (sort everything,
// std::exp in double), or by hand where a case is small enough; never pasted.
#include "models/sampler.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

#include "base/prng.h"

namespace {

using namespace troupe;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t sampled(std::span<const float> logits, const SamplingParameters& parameters,
                 uint32_t position = 7) {
  Sampler sampler;
  const Result<uint32_t> token = sampler.sample(logits, parameters, position);
  BOOST_REQUIRE_MESSAGE(token.ok(), to_string(token.ok() ? Error{} : token.error()));
  return token.value();
}

ErrorCode refused(std::span<const float> logits, const SamplingParameters& parameters) {
  Sampler sampler;
  const Result<uint32_t> token = sampler.sample(logits, parameters, 0);
  BOOST_REQUIRE(!token.ok());
  BOOST_TEST_MESSAGE(token.error().message);
  return token.error().code;
}

std::vector<uint32_t> by_likelihood(std::span<const float> logits) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  return order;
}

struct Expected {
  uint32_t token = 0;
  double margin = 0.0;  // distance of the draw from the nearest edge, as a share of the mass
};

// The definition, in double: near an edge the float32 weights may decide otherwise, so the margin
// is told.
Expected expected(std::span<const float> logits, const SamplingParameters& parameters,
                  uint32_t position) {
  const std::vector<uint32_t> order = by_likelihood(logits);
  std::vector<double> weights;
  for (const uint32_t token : order)
    weights.push_back(std::exp((double{logits[token]} - double{logits[order[0]]}) /
                               double{parameters.temperature}));
  if (parameters.top_k > 0 && parameters.top_k < weights.size()) weights.resize(parameters.top_k);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept_mass = 0.0, margin = 1.0;
  size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || kept_mass < double{parameters.top_p} * total)) {
    kept_mass += weights[kept++];
    margin = std::min(margin, std::abs(kept_mass / total - double{parameters.top_p}));
  }
  if (parameters.top_p == 1.0F) margin = 1.0;
  for (size_t k = 1; k < kept; ++k)
    margin = std::min(margin, std::abs(weights[k] - double{parameters.min_p}));
  while (kept > 1 && weights[kept - 1] < double{parameters.min_p}) kept_mass -= weights[--kept];
  const double target = double{philox_uniform(parameters.seed, position, 0)} * kept_mass;
  double mass = 0.0;
  for (size_t k = 0; k < kept; ++k) {
    mass += weights[k];
    margin = std::min(margin, std::abs(mass - target) / kept_mass);
    if (mass > target) return {order[k], margin};
  }
  return {order[kept - 1], 0.0};
}

std::vector<float> random_logits(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sampler)

// Vectors of philox4x32-10 from the Random123 distribution (kat_vectors).
BOOST_AUTO_TEST_CASE(philox_gives_the_published_vectors) {
  constexpr uint32_t kOnes = 0xffffffff;
  const PhiloxCounter zeros = philox4x32_10({0, 0, 0, 0}, {0, 0});
  BOOST_TEST((zeros == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const PhiloxCounter ones = philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes});
  BOOST_TEST((ones == PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

BOOST_AUTO_TEST_CASE(greedy_takes_the_largest_logit) {
  BOOST_TEST(sampled(std::vector<float>{-3.0F, 2.5F, 2.0F}, {}) == 1U);
  BOOST_TEST(sampled(std::vector<float>{-5.0F}, {}) == 0U);
  BOOST_TEST(sampled(std::vector<float>{-kInfinity, -1e30F}, {}) == 1U);
}

BOOST_AUTO_TEST_CASE(ties_go_to_the_lower_token_id) {
  BOOST_TEST(sampled(std::vector<float>{1.0F, 4.0F, 4.0F, 4.0F}, {}) == 1U);
  // Zero and minus zero are equal.
  BOOST_TEST(sampled(std::vector<float>{-0.0F, 0.0F}, {}) == 0U);
  // The smallest top-p keeps one candidate: among equals, the lowest id, whatever is drawn.
  const std::vector<float> equal(1000, 0.25F);
  for (uint64_t seed = 0; seed < 50; ++seed)
    BOOST_TEST(sampled(equal, {.temperature = 1.0F, .top_p = 1e-6F, .seed = seed}) == 0U);
}

// Four equal logits: the draw u in [0, 1) falls into quarter floor(4u).
BOOST_AUTO_TEST_CASE(equal_logits_are_chosen_by_the_quarter_the_draw_falls_into) {
  const std::vector<float> logits(4, 1.5F);
  for (uint32_t position = 0; position < 200; ++position) {
    const auto quarter = static_cast<uint32_t>(4.0F * philox_uniform(99, position, 0));
    BOOST_TEST(sampled(logits, {.temperature = 0.7F, .seed = 99}, position) == quarter);
  }
}

// Two of four equal logits reach 0.5 of the mass exactly, and the third is needed for more.
BOOST_AUTO_TEST_CASE(top_p_keeps_the_smallest_set_that_reaches_it) {
  const std::vector<float> logits(4, 0.0F);
  for (uint32_t position = 0; position < 200; ++position) {
    const float u = philox_uniform(5, position, 0);
    BOOST_TEST(sampled(logits, {.temperature = 1.0F, .top_p = 0.5F, .seed = 5}, position) ==
               static_cast<uint32_t>(2.0F * u));
    BOOST_TEST(sampled(logits, {.temperature = 1.0F, .top_p = 0.51F, .seed = 5}, position) ==
               static_cast<uint32_t>(3.0 * double{u}));
  }
}

BOOST_AUTO_TEST_CASE(agrees_with_a_plain_implementation_of_the_definition) {
  uint32_t compared = 0, skipped = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const size_t count = 1 + random() % 3000;
    const std::vector<float> logits = random_logits(count, seed);
    const SamplingParameters parameters{
        .temperature = 0.05F + static_cast<float>(random() % 400) / 100.0F,
        .top_p = random() % 3 == 0 ? 1.0F : 0.01F + static_cast<float>(random() % 99) / 100.0F,
        .seed = random(),
        .top_k = random() % 2 == 0 ? 0 : static_cast<uint32_t>(random() % 100),
        .min_p = random() % 2 == 0 ? 0.0F : static_cast<float>(random() % 50) / 100.0F};
    const auto position = static_cast<uint32_t>(random() % 100000);
    const Expected want = expected(logits, parameters, position);
    // float32 weights differ from double by about 1e-7 each.
    if (want.margin < 1e-5) {
      ++skipped;
      continue;
    }
    ++compared;
    BOOST_TEST(sampled(logits, parameters, position) == want.token, "seed " << seed);
  }
  BOOST_TEST(compared > 250U);
  BOOST_TEST_MESSAGE("compared " << compared << ", too close to an edge " << skipped);
}

BOOST_AUTO_TEST_CASE(is_a_function_of_logits_parameters_and_position_alone) {
  const std::vector<float> logits = random_logits(49152, 3);
  const SamplingParameters parameters{.temperature = 1.3F, .top_p = 0.95F, .seed = 11};
  Sampler used;
  for (uint32_t position = 0; position < 20; ++position) {
    const std::vector<float> other = random_logits(100 + position, position);
    BOOST_REQUIRE(used.sample(other, {.temperature = 90.0F, .seed = 1}, 1).ok());
    const uint32_t token = used.sample(logits, parameters, position).value();
    BOOST_TEST(token == sampled(logits, parameters, position));
  }
}

BOOST_AUTO_TEST_CASE(seed_and_position_both_matter) {
  const std::vector<float> logits(10000, 0.0F);
  const uint32_t token = sampled(logits, {.temperature = 1.0F, .seed = 1}, 0);
  BOOST_TEST(token != sampled(logits, {.temperature = 1.0F, .seed = 2}, 0));
  BOOST_TEST(token != sampled(logits, {.temperature = 1.0F, .seed = 1}, 1));
}

// Token i of four has weight 2^i at this temperature: frequencies 1, 2, 4, 8 of 15.
BOOST_AUTO_TEST_CASE(frequencies_follow_the_weights) {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F, 3.0F};
  const auto temperature = static_cast<float>(1.0 / std::log(2.0));
  std::vector<double> counts(4, 0.0);
  constexpr uint32_t kDraws = 20000;
  for (uint32_t position = 0; position < kDraws; ++position)
    counts[sampled(logits, {.temperature = temperature, .seed = 77}, position)] += 1.0;
  for (size_t i = 0; i < 4; ++i) {
    const double p = std::ldexp(1.0, static_cast<int>(i)) / 15.0;
    const double deviation = std::sqrt(kDraws * p * (1.0 - p));
    BOOST_TEST(std::abs(counts[i] - kDraws * p) < 4.5 * deviation);
  }
}

BOOST_AUTO_TEST_CASE(minus_infinity_is_never_chosen) {
  std::vector<float> logits(300, -kInfinity);
  logits[123] = -40.0F;
  logits[200] = -41.0F;
  for (uint32_t position = 0; position < 100; ++position) {
    const uint32_t token = sampled(logits, {.temperature = 100.0F, .seed = 4}, position);
    BOOST_TEST((token == 123U || token == 200U));
  }
}

BOOST_AUTO_TEST_CASE(extreme_temperatures_stay_defined) {
  const std::vector<float> logits = {1.0F, 3e38F, -3e38F, 2.9e38F};
  BOOST_TEST(sampled(logits, {.temperature = 1e-45F, .seed = 1}) == 1U);
  BOOST_TEST(sampled(logits, {.temperature = 100.0F, .seed = 1}) == 1U);
}

BOOST_AUTO_TEST_CASE(broken_logits_are_an_error) {
  for (const float temperature : {0.0F, 1.0F}) {
    const SamplingParameters parameters{.temperature = temperature};
    BOOST_TEST((refused(std::vector<float>{1.0F, kNan}, parameters) == ErrorCode::kInvalidFrame));
    BOOST_TEST((refused(std::vector<float>{kNan}, parameters) == ErrorCode::kInvalidFrame));
    BOOST_TEST(
        (refused(std::vector<float>{1.0F, kInfinity}, parameters) == ErrorCode::kInvalidFrame));
    BOOST_TEST(
        (refused(std::vector<float>(3, -kInfinity), parameters) == ErrorCode::kInvalidFrame));
    BOOST_TEST((refused({}, parameters) == ErrorCode::kInvalidArgument));
  }
}

BOOST_AUTO_TEST_CASE(absurd_parameters_are_refused) {
  const std::vector<float> logits = {1.0F, 2.0F};
  for (const float temperature : {-0.1F, 100.5F, kNan, kInfinity, -kInfinity})
    BOOST_TEST((refused(logits, {.temperature = temperature}) == ErrorCode::kInvalidArgument));
  for (const float top_p : {0.0F, -1.0F, 1.0001F, kNan, kInfinity})
    BOOST_TEST(
        (refused(logits, {.temperature = 1.0F, .top_p = top_p}) == ErrorCode::kInvalidArgument));
  for (const float min_p : {-0.1F, 1.1F, kNan, kInfinity})
    BOOST_TEST(
        (refused(logits, {.temperature = 1.0F, .min_p = min_p}) == ErrorCode::kInvalidArgument));
  BOOST_TEST(check_sampling({.temperature = 100.0F, .top_p = 1.0F}).ok());
  BOOST_TEST(check_sampling({.temperature = 0.0F, .top_p = 1e-20F}).ok());
}

// The draw falls among k equal shares.
BOOST_AUTO_TEST_CASE(top_k_keeps_so_many_of_the_likeliest) {
  std::vector<float> logits(100, -1.0F);
  for (const size_t likely : {7U, 70U, 40U}) logits[likely] = 2.0F;
  for (uint32_t position = 0; position < 200; ++position) {
    const float u = philox_uniform(8, position, 0);
    const SamplingParameters two{.temperature = 1.0F, .seed = 8, .top_k = 2};
    BOOST_TEST(sampled(logits, two, position) == (u < 0.5F ? 7U : 40U));
    BOOST_TEST(sampled(logits, {.temperature = 9.0F, .seed = 8, .top_k = 1}, position) == 7U);
    // More than there are is all of them.
    BOOST_TEST(sampled(logits, {.temperature = 1.0F, .seed = 8, .top_k = 1000}, position) ==
               sampled(logits, {.temperature = 1.0F, .seed = 8}, position));
  }
}

// A token two nats behind the likeliest is exp(-2) = 0.1353 as likely, at temperature 2 exp(-1).
BOOST_AUTO_TEST_CASE(min_p_keeps_what_is_likely_enough_beside_the_likeliest) {
  const std::vector<float> logits{3.0F, 1.0F, 1.0F, -9.0F};
  const auto ever = [&](SamplingParameters parameters) {
    std::vector<bool> seen(logits.size());
    for (uint32_t position = 0; position < 400; ++position)
      seen[sampled(logits, parameters, position)] = true;
    return seen;
  };
  const std::vector<bool> first{true, false, false, false}, three{true, true, true, false};
  BOOST_TEST((ever({.temperature = 1.0F, .min_p = 0.14F}) == first));
  BOOST_TEST((ever({.temperature = 1.0F, .min_p = 0.13F}) == three));
  BOOST_TEST((ever({.temperature = 2.0F, .min_p = 0.36F}) == three));
  BOOST_TEST((ever({.temperature = 2.0F, .min_p = 1.0F}) == first));
}

// Chi-squared with two degrees of freedom: 13.8 is exceeded once in a thousand, and the draws are
// fixed by the seed.
BOOST_AUTO_TEST_CASE(what_is_kept_is_chosen_in_its_proportion) {
  const std::vector<float> logits{0.0F, 1.0F, 2.0F, -1.0F, -3.0F};
  const SamplingParameters parameters{.temperature = 1.0F, .seed = 3, .top_k = 4, .min_p = 0.1F};
  constexpr uint32_t kDraws = 20'000;
  std::vector<double> count(logits.size());
  for (uint32_t position = 0; position < kDraws; ++position)
    ++count[sampled(logits, parameters, position)];
  double squared = 0.0, mass = 0.0;
  for (const size_t token : {0U, 1U, 2U}) mass += std::exp(double{logits[token]});
  for (const size_t token : {0U, 1U, 2U}) {
    const double wanted = kDraws * std::exp(double{logits[token]}) / mass;
    squared += (count[token] - wanted) * (count[token] - wanted) / wanted;
  }
  BOOST_TEST(squared < 13.8);
  BOOST_TEST(count[3] + count[4] == 0.0);
}

BOOST_AUTO_TEST_SUITE_END()

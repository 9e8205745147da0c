// Chance with an address: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", 2011), a counter-based generator. A draw is a function of (seed, counter) and of nothing
// else, so a token sampled after a recovery is the token that would have been sampled without it.
#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace troupe {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// The draw-th uniform number in [0, 1) with 24 random bits for a token position under a request's
// seed.
constexpr float philox_uniform(uint64_t seed, uint64_t position, uint32_t draw) {
  const PhiloxCounter out = philox4x32_10(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), draw, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(out[0] >> 8) * 0x1p-24F;
}

// A seed or an incarnation nobody can guess: from the operating system, never 0.
inline uint64_t random_u64() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) value = (static_cast<uint64_t>(device()) << 32) | device();
  return value;
}

}  // namespace troupe

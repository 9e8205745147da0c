// Block-quantised weights as GGUF files hold them (ggml's layouts), and half precision in portable
// bit code. A block is 32 consecutive elements of a row. 4-bit blocks keep element i in the low
// half of byte i and element i + 16 in the high half.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe {

inline constexpr size_t kQuantBlock = 32;

struct BlockQ8_0 {  // w = q · d
  uint16_t d;       // IEEE half
  int8_t q[32];
};
struct BlockQ4_0 {  // w = (q - 8) · d
  uint16_t d;
  uint8_t q[16];
};
struct BlockQ4_1 {  // w = q · d + m
  uint16_t d;
  uint16_t m;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 2);
static_assert(sizeof(BlockQ4_1) == 20 && alignof(BlockQ4_1) == 2);

// Exact. A signalling NaN becomes quiet, as F16C does.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: fraction · 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {
    const uint32_t quiet = fraction != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Rounds to nearest even; overflow becomes infinity; a NaN keeps sign and top payload bits and
// becomes quiet.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U)
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and more
  if (magnitude <
      0x38800000U) {  // below 2^-14: a multiple of 2^-24, rounded by the addition of 0.5
    const float shifted =
        std::bit_cast<float>(magnitude) + 0.5F;  // the sum's last bit is worth 2^-24
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

}  // namespace troupe

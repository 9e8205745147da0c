// Block-quantised weights as GGUF files hold them (ggml's layouts), and half precision in portable
// bit code. A block is 32 consecutive elements of a row, a super-block 256: 8 blocks with whole
// numbers as scales and one or two half precision factors. Blocks of 32 with 4 bits keep element i
// in the low half of byte i and element i + 16 in the high half. Where the bits of a super-block
// lie is told by quant_decode.cpp. Layouts: ggml-common.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe {

inline constexpr size_t kQuantBlock = 32;
inline constexpr size_t kSuperBlock = 256;

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
struct BlockQ5_0 {  // w = (q - 16) · d
  uint16_t d;
  uint8_t high[4];  // bit i: the fifth bit of element i
  uint8_t q[16];
};
struct BlockQ5_1 {  // w = q · d + m
  uint16_t d;
  uint16_t m;
  uint8_t high[4];
  uint8_t q[16];
};
struct BlockIq4Nl {  // w = table[q] · d
  uint16_t d;
  uint8_t q[16];
};
struct BlockMxfp4 {  // w = table[q] · 2^(e - 128)
  uint8_t e;
  uint8_t q[16];
};
struct BlockQ2K {  // w = q · scale · d - minimum · dmin, scale and minimum of each 16
  uint8_t scales[16];
  uint8_t q[64];
  uint16_t d;
  uint16_t dmin;
};
struct BlockQ3K {  // w = (q - 4) · (scale - 32) · d, scale of each 16
  uint8_t high[32];
  uint8_t q[64];
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4K {  // w = q · scale · d - minimum · dmin, scale and minimum of each 32
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t q[128];
};
struct BlockQ5K {  // as Q4_K
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t q[128];
};
struct BlockQ6K {  // w = (q - 32) · scale · d, scale of each 16
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockIq4Xs {  // w = table[q] · (scale - 32) · d, scale of each 32
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];
};
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIq4Nl) == 18);
static_assert(sizeof(BlockMxfp4) == 17 && sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110);
static_assert(sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210);
static_assert(sizeof(BlockIq4Xs) == 136);
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 2);
static_assert(sizeof(BlockQ4_1) == 20 && alignof(BlockQ4_1) == 2);

inline float bf16_to_float(uint16_t upper) {  // exact
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

// 2^(e - 128), exact: the smallest two are subnormal. 255 gives 2^127, as in ggml; the OCP
// microscaling specification calls it NaN, and models/ refuses it.
inline float e8m0_to_float(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x200000U << e : static_cast<uint32_t>(e - 1) << 23);
}

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

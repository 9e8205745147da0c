// Random inputs for the kernels, from a seed that a failing test prints. Wild inputs hold what
// arithmetic stumbles over: NaN, infinities, subnormals, huge and tiny numbers, zeros of both
// signs.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "kernels/quant_blocks.h"

namespace troupe::test {

// Where the half precision numbers of a block lie.
inline std::vector<size_t> half_places(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kBf16:
    case DataType::kMxfp4:
      return {};
    case DataType::kQ4_1:
    case DataType::kQ5_1:
    case DataType::kQ4K:
    case DataType::kQ5K:
      return {0, 2};
    case DataType::kQ2K:
      return {80, 82};
    case DataType::kQ3K:
      return {108};
    case DataType::kQ6K:
      return {208};
    default:
      return {0};
  }
}

// Whether a byte of a block holds whole-number scales.
inline bool is_scale_byte(DataType type, size_t byte) {
  switch (type) {
    case DataType::kQ2K:
      return byte < 16;
    case DataType::kQ3K:
      return byte >= 96 && byte < 108;
    case DataType::kQ4K:
    case DataType::kQ5K:
      return byte >= 4 && byte < 16;
    case DataType::kQ6K:
      return byte >= 192 && byte < 208;
    case DataType::kIq4Xs:
      return byte >= 2 && byte < 8;
    default:
      return false;
  }
}

inline bool is_quantised(DataType type) {
  return block_elements(type) > 1;
}

// The least length of at least k that is whole blocks.
inline size_t whole_blocks(DataType type, size_t k) {
  const size_t elements = block_elements(type);
  return (k + elements - 1) / elements * elements;
}

enum class Kind { kTame, kWide, kWild };

class Inputs {
 public:
  explicit Inputs(uint64_t seed) : engine_(seed) {}

  size_t below(size_t limit) { return static_cast<size_t>(engine_() % limit); }
  float uniform() { return static_cast<float>(engine_() >> 40) * 0x1p-23F - 1.0F; }

  // Tame: [-1, 1). Wide: exponents from subnormal to huge. Wild: now and then anything.
  float value(Kind kind) {
    if (kind == Kind::kTame) return uniform();
    if (kind == Kind::kWide) return std::ldexp(uniform(), static_cast<int>(below(250)) - 140);
    if (below(24) != 0) return uniform() * 4;
    switch (below(8)) {
      case 0:
        return std::numeric_limits<float>::quiet_NaN();
      case 1:
        return -std::bit_cast<float>(0x7FA12345U);  // a signalling NaN with a payload
      case 2:
        return std::numeric_limits<float>::infinity();
      case 3:
        return -std::numeric_limits<float>::infinity();
      case 4:
        return std::bit_cast<float>(static_cast<uint32_t>(below(0x7FFFFF)));
      case 5:
        return -0.0F;
      case 6:
        return std::numeric_limits<float>::max() * uniform();
      default:
        return 0;
    }
  }

  std::vector<float> values(size_t count, Kind kind) {
    std::vector<float> out(count);
    for (float& x : out) x = value(kind);
    return out;
  }

  uint16_t half(Kind kind) {
    if (kind == Kind::kWild && below(64) == 0) return static_cast<uint16_t>(engine_());
    return float_to_half(uniform() * 0.25F);
  }

  // The bytes of a weight [rows][columns] in its file format: random but for factors and floats,
  // which are of the kind.
  std::vector<std::byte> weight(DataType type, size_t rows, size_t columns, Kind kind) {
    const size_t blocks = rows * columns / block_elements(type), size = block_bytes(type);
    std::vector<std::byte> bytes(blocks * size);
    for (auto& byte : bytes) byte = static_cast<std::byte>(engine_());
    for (size_t b = 0; b < blocks; ++b) {
      std::byte* block = bytes.data() + b * size;
      if (type == DataType::kF32 || type == DataType::kBf16) {
        const float w = value(kind);  // BF16 is the upper half of it
        std::memcpy(block, reinterpret_cast<const std::byte*>(&w) + sizeof(w) - size, size);
      }
      if (type == DataType::kMxfp4 && kind != Kind::kWild)
        block[0] = static_cast<std::byte>(118 + below(10));
      for (const size_t place : half_places(type)) {
        const uint16_t scale = half(kind);
        std::memcpy(block + place, &scale, sizeof(scale));
      }
    }
    return bytes;
  }

 private:
  std::mt19937_64 engine_;
};

// Index of the first element whose bits differ, or the count if none does.
inline size_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  size_t i = 0;
  while (i < a.size() && std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) ++i;
  return i;
}

inline size_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i)
    count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]);
  return count;
}

}  // namespace troupe::test

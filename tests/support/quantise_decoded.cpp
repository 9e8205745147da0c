#include "tests/support/quantise_decoded.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/quant_blocks.h"
#include "kernels/quant_decode.h"

namespace troupe::test {

namespace {

// A block, or super-block, in whole numbers: what encode() writes.
struct Whole {
  uint16_t d = 0, dmin = 0;     // halves
  uint8_t exponent = 0;         // MXFP4
  std::array<int, 16> scale{};  // of each 16 elements
  std::array<int, 16> minimum{};
  std::array<unsigned, kSuperBlock> code{};
};

struct Ranges {
  size_t sub = kQuantBlock;  // elements that share a scale
  unsigned codes = 16;
  int scale_max = 1;
  int minimum_max = 0;
};

Ranges ranges_of(DataType type) {
  switch (type) {
    case DataType::kQ5_0:
      return {.codes = 32};
    case DataType::kQ5_1:
      return {.codes = 32, .minimum_max = 1};
    case DataType::kQ2K:
      return {.sub = 16, .codes = 4, .scale_max = 15, .minimum_max = 15};
    case DataType::kQ3K:
      return {.sub = 16, .codes = 8, .scale_max = 31};
    case DataType::kQ4K:
      return {.scale_max = 63, .minimum_max = 63};
    case DataType::kQ5K:
      return {.codes = 32, .scale_max = 63, .minimum_max = 63};
    case DataType::kQ6K:
      return {.sub = 16, .codes = 64, .scale_max = 127};
    case DataType::kIq4Xs:
      return {.scale_max = 31};
    default:
      return {};
  }
}

int largest_value(DataType type, unsigned codes) {
  int largest = 0;
  for (unsigned code = 0; code < codes; ++code)
    largest = std::max<int>(largest, value_of_code(type, static_cast<uint8_t>(code)));
  return largest;
}

unsigned nearest_code(DataType type, unsigned codes, float value) {
  unsigned best = 0;
  float distance = INFINITY;
  for (unsigned code = 0; code < codes; ++code) {
    const float off =
        std::fabs(value - static_cast<float>(value_of_code(type, static_cast<uint8_t>(code))));
    if (off < distance) {
      distance = off;
      best = code;
    }
  }
  return best;
}

// The step of a sub-block, and how far below zero it reaches.
struct Span {
  float step = 0, below = 0;
};

Span span_of(DataType type, const Ranges& ranges, std::span<const float> x) {
  const auto largest = static_cast<float>(largest_value(type, ranges.codes));
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  if (ranges.minimum_max > 0) {
    const float below = std::max(0.0F, -*least);
    return {(std::max(0.0F, *most) + below) / largest, below};
  }
  return {std::max(std::fabs(*least), std::fabs(*most)) / largest, 0};
}

int whole(float value, float unit, int most) {
  return unit == 0 ? 0 : std::clamp(static_cast<int>(std::nearbyint(value / unit)), 0, most);
}

Whole chosen(DataType type, std::span<const float> x) {
  const Ranges ranges = ranges_of(type);
  std::array<Span, 16> spans{};
  float step = 0, below = 0;
  for (size_t s = 0; s < x.size() / ranges.sub; ++s) {
    spans[s] = span_of(type, ranges, x.subspan(s * ranges.sub, ranges.sub));
    step = std::max(step, spans[s].step);
    below = std::max(below, spans[s].below);
  }
  Whole to;
  to.d = float_to_half(step / static_cast<float>(ranges.scale_max));
  to.dmin = float_to_half(below / static_cast<float>(std::max(ranges.minimum_max, 1)));
  float d = half_to_float(to.d);
  const float dmin = half_to_float(to.dmin);
  if (type == DataType::kMxfp4) {
    const int power = step == 0 ? -128 : static_cast<int>(std::ceil(std::log2(step)));
    to.exponent = static_cast<uint8_t>(std::clamp(power + 128, 0, 254));
    d = e8m0_to_float(to.exponent);
  }
  for (size_t k = 0; k < x.size(); ++k) {
    const Span& span = spans[k / ranges.sub];
    const int scale = ranges.scale_max == 1 ? 1 : whole(span.step, d, ranges.scale_max);
    const int minimum = ranges.minimum_max == 0 ? 0 : whole(span.below, dmin, ranges.minimum_max);
    to.scale[k / 16] = scale;
    to.minimum[k / 16] = minimum;
    const float unit = d * static_cast<float>(scale);
    const float value = unit == 0 ? 0 : (x[k] + dmin * static_cast<float>(minimum)) / unit;
    to.code[k] = nearest_code(type, ranges.codes, value);
  }
  return to;
}

// Adds bits to a byte that has them still at 0.
void put(uint8_t& byte, unsigned bits, size_t shift) {
  byte = static_cast<uint8_t>(byte | bits << shift);
}
void put_nibble(uint8_t* q, size_t k, unsigned code) {
  put(q[k % 16], code & 15U, 4 * (k / 16));
}

void encode(const Whole& from, BlockQ5_0& to) {
  to.d = from.d;
  for (size_t k = 0; k < kQuantBlock; ++k) {
    put_nibble(to.q, k, from.code[k]);
    put(to.high[k / 8], from.code[k] >> 4, k % 8);
  }
}
void encode(const Whole& from, BlockQ5_1& to) {
  to.d = from.d;
  to.m = float_to_half(-half_to_float(from.dmin) * static_cast<float>(from.minimum[0]));
  for (size_t k = 0; k < kQuantBlock; ++k) {
    put_nibble(to.q, k, from.code[k]);
    put(to.high[k / 8], from.code[k] >> 4, k % 8);
  }
}
void encode(const Whole& from, BlockIq4Nl& to) {
  to.d = from.d;
  for (size_t k = 0; k < kQuantBlock; ++k) put_nibble(to.q, k, from.code[k]);
}
void encode(const Whole& from, BlockMxfp4& to) {
  to.e = from.exponent;
  for (size_t k = 0; k < kQuantBlock; ++k) put_nibble(to.q, k, from.code[k]);
}

// Calls act(b, k, code) for element k of block b of a super-block.
template <class Act>
void for_codes(const Whole& from, const Act& act) {
  for (size_t i = 0; i < kSuperBlock; ++i) act(i / kQuantBlock, i % kQuantBlock, from.code[i]);
}

void encode(const Whole& from, BlockQ2K& to) {
  to.d = from.d;
  to.dmin = from.dmin;
  for (size_t s = 0; s < 16; ++s)
    to.scales[s] = static_cast<uint8_t>(from.scale[s] | from.minimum[s] << 4);
  for_codes(from, [&](size_t b, size_t k, unsigned code) {
    put(to.q[b / 4 * 32 + k], code, 2 * (b % 4));
  });
}
void encode(const Whole& from, BlockQ3K& to) {
  to.d = from.d;
  for (size_t s = 0; s < 16; ++s) {
    const auto scale = static_cast<unsigned>(from.scale[s] + 32);
    put(to.scales[s % 8], scale & 15U, 4 * (s / 8));
    put(to.scales[8 + s % 4], scale >> 4, 2 * (s / 4));
  }
  for_codes(from, [&](size_t b, size_t k, unsigned code) {
    put(to.q[b / 4 * 32 + k], code & 3U, 2 * (b % 4));
    put(to.high[k], code >> 2, b);
  });
}
void put_scales_of_6_bits(const Whole& from, uint8_t (&scales)[12]) {
  for (size_t b = 0; b < 8; ++b) {
    const auto scale = static_cast<unsigned>(from.scale[2 * b]);
    const auto minimum = static_cast<unsigned>(from.minimum[2 * b]);
    if (b < 4) {
      put(scales[b], scale, 0);
      put(scales[b + 4], minimum, 0);
    } else {
      put(scales[b + 4], (scale & 15U) | (minimum & 15U) << 4, 0);
      put(scales[b - 4], scale >> 4, 6);
      put(scales[b], minimum >> 4, 6);
    }
  }
}
void encode(const Whole& from, BlockQ4K& to) {
  to.d = from.d;
  to.dmin = from.dmin;
  put_scales_of_6_bits(from, to.scales);
  for_codes(from, [&](size_t b, size_t k, unsigned code) {
    put(to.q[b / 2 * 32 + k], code, 4 * (b % 2));
  });
}
void encode(const Whole& from, BlockQ5K& to) {
  to.d = from.d;
  to.dmin = from.dmin;
  put_scales_of_6_bits(from, to.scales);
  for_codes(from, [&](size_t b, size_t k, unsigned code) {
    put(to.q[b / 2 * 32 + k], code & 15U, 4 * (b % 2));
    put(to.high[k], code >> 4, b);
  });
}
void encode(const Whole& from, BlockQ6K& to) {
  to.d = from.d;
  for (size_t s = 0; s < 16; ++s) to.scales[s] = static_cast<int8_t>(from.scale[s]);
  for_codes(from, [&](size_t b, size_t k, unsigned code) {
    put(to.low[b / 4 * 64 + b % 2 * 32 + k], code & 15U, 4 * (b % 4 / 2));
    put(to.high[b / 4 * 32 + k], code >> 4, 2 * (b % 4));
  });
}
void encode(const Whole& from, BlockIq4Xs& to) {
  to.d = from.d;
  for (size_t b = 0; b < 8; ++b) {
    const auto scale = static_cast<unsigned>(from.scale[2 * b] + 32);
    put(to.scales_low[b / 2], scale & 15U, 4 * (b % 2));
    to.scales_high = static_cast<uint16_t>(to.scales_high | (scale >> 4) << (2 * b));
  }
  for_codes(from, [&](size_t b, size_t k, unsigned code) { put_nibble(to.q + 16 * b, k, code); });
}

template <class Block>
void add_blocks(DataType type, std::span<const float> values, std::vector<std::byte>& out) {
  const size_t elements = block_elements(type);
  for (size_t i = 0; i < values.size(); i += elements) {
    Block block{};
    encode(chosen(type, values.subspan(i, elements)), block);
    const size_t end = out.size();
    out.resize(end + sizeof block);
    std::memcpy(out.data() + end, &block, sizeof block);
  }
}

}  // namespace

std::vector<std::byte> quantise_decoded(DataType type, std::span<const float> values) {
  TROUPE_CHECK(values.size() % block_elements(type) == 0, "values come in whole blocks");
  std::vector<std::byte> out;
  switch (type) {
    case DataType::kQ5_0:
      add_blocks<BlockQ5_0>(type, values, out);
      break;
    case DataType::kQ5_1:
      add_blocks<BlockQ5_1>(type, values, out);
      break;
    case DataType::kQ2K:
      add_blocks<BlockQ2K>(type, values, out);
      break;
    case DataType::kQ3K:
      add_blocks<BlockQ3K>(type, values, out);
      break;
    case DataType::kQ4K:
      add_blocks<BlockQ4K>(type, values, out);
      break;
    case DataType::kQ5K:
      add_blocks<BlockQ5K>(type, values, out);
      break;
    case DataType::kQ6K:
      add_blocks<BlockQ6K>(type, values, out);
      break;
    case DataType::kIq4Nl:
      add_blocks<BlockIq4Nl>(type, values, out);
      break;
    case DataType::kIq4Xs:
      add_blocks<BlockIq4Xs>(type, values, out);
      break;
    case DataType::kMxfp4:
      add_blocks<BlockMxfp4>(type, values, out);
      break;
    default:
      TROUPE_CHECK(false, "a type with a decoder");
  }
  return out;
}

}  // namespace troupe::test

#include "kernels/cpu/pack_decoded.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/avx2_kernels.h"
#include "kernels/quant_blocks.h"

namespace troupe {

namespace {

using avx2::kPanelRows;
using avx2::PanelLayout;

// Where a code's bits lie among the words of 4 bytes of its row.
struct BitPlace {
  size_t word;
  size_t shift;
};
BitPlace place_of(size_t k, size_t bits) {
  const size_t byte = 8 * (k % 4);
  if (bits == 4) return {k % 16 / 4, byte + 4 * (k / 16)};
  if (bits == 2) return {k / 16, byte + 2 * (k / 4 % 4)};
  return {0, byte + k / 4};
}

// `words`: the first word of a row; the next is 32 bytes on.
void put_bits(std::byte* words, const uint8_t* code, size_t bits, size_t from_bit) {
  uint32_t whole[4] = {};
  for (size_t k = 0; k < kQuantBlock; ++k) {
    const BitPlace place = place_of(k, bits);
    const uint32_t field = (static_cast<uint32_t>(code[k]) >> from_bit) & ((1U << bits) - 1);
    whole[place.word] |= field << place.shift;
  }
  for (size_t word = 0; word < bits; ++word) std::memcpy(words + 32 * word, &whole[word], 4);
}

void add_bits(const std::byte* words, uint8_t* code, size_t bits, size_t to_bit) {
  for (size_t k = 0; k < kQuantBlock; ++k) {
    const BitPlace place = place_of(k, bits);
    uint32_t word;
    std::memcpy(&word, words + 32 * place.word, 4);
    const uint32_t field = (word >> place.shift) & ((1U << bits) - 1);
    code[k] = static_cast<uint8_t>(code[k] | field << to_bit);
  }
}

void put_half(std::byte* to, float value) {
  const uint16_t half = float_to_half(value);  // it was one: exact
  std::memcpy(to, &half, sizeof half);
}
float half_at(const std::byte* from) {
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return half_to_float(half);
}

// Of e8m0_to_float(): its exponent byte.
uint8_t exponent_of(float power) {
  const auto bits = std::bit_cast<uint32_t>(power);
  return bits < 0x800000U ? static_cast<uint8_t>(bits >> 22)
                          : static_cast<uint8_t>((bits >> 23) + 1);
}

void put_scales(DataType type, std::byte* header, std::byte* scales, size_t i,
                const DecodedBlock& block) {
  const PanelLayout& layout = panel_layout(type);
  if (layout.header > 0) put_half(header + 2 * i, block.d);
  if (layout.header > 32) put_half(header + 32 + 2 * i, block.dmin);
  if (type == DataType::kMxfp4) {
    scales[i] = static_cast<std::byte>(exponent_of(block.d));
  } else if (layout.header == 0) {
    put_half(scales + 2 * i, block.d);
    if (layout.scales > 32) put_half(scales + 32 + 2 * i, -block.dmin);
  } else if (type == DataType::kQ2K) {
    for (size_t half = 0; half < 2; ++half)
      scales[16 * half + i] = static_cast<std::byte>(block.scale[half] | block.minimum[half] << 4);
  } else {
    scales[i] = static_cast<std::byte>(block.scale[0]);
    const bool minimum = minimums_of(type) == Minimums::kOfBlock;
    if (minimum) scales[16 + i] = static_cast<std::byte>(block.minimum[0]);
    if (!minimum && type != DataType::kIq4Xs)
      scales[16 + i] = static_cast<std::byte>(block.scale[1]);
  }
}

void read_scales(DataType type, const std::byte* header, const std::byte* scales, size_t i,
                 DecodedBlock& block) {
  const PanelLayout& layout = panel_layout(type);
  const auto first = std::to_integer<uint8_t>(scales[i]);
  const auto second = std::to_integer<uint8_t>(scales[16 + i]);
  if (layout.header > 0) block.d = half_at(header + 2 * i);
  if (layout.header > 32) block.dmin = half_at(header + 32 + 2 * i);
  if (type == DataType::kMxfp4) {
    block.d = e8m0_to_float(first);
  } else if (layout.header == 0) {
    block.d = half_at(scales + 2 * i);
    if (layout.scales > 32) {
      block.dmin = -half_at(scales + 32 + 2 * i);
      block.minimum[0] = block.minimum[1] = 1;
    }
  } else if (type == DataType::kQ2K) {
    block.scale[0] = static_cast<int8_t>(first & 15);
    block.scale[1] = static_cast<int8_t>(second & 15);
    block.minimum[0] = static_cast<uint8_t>(first >> 4);
    block.minimum[1] = static_cast<uint8_t>(second >> 4);
  } else {
    block.scale[0] = block.scale[1] = static_cast<int8_t>(first);
    if (minimums_of(type) == Minimums::kOfBlock)
      block.minimum[0] = block.minimum[1] = second;
    else if (type != DataType::kIq4Xs)
      block.scale[1] = static_cast<int8_t>(second);
  }
}

}  // namespace

const PanelLayout& panel_layout(DataType type) {
  switch (type) {
    case DataType::kQ5_0:
      return avx2::kQ5_0Panel;
    case DataType::kQ5_1:
      return avx2::kQ5_1Panel;
    case DataType::kQ2K:
      return avx2::kQ2KPanel;
    case DataType::kQ3K:
      return avx2::kQ3KPanel;
    case DataType::kQ4K:
      return avx2::kQ4KPanel;
    case DataType::kQ5K:
      return avx2::kQ5KPanel;
    case DataType::kQ6K:
      return avx2::kQ6KPanel;
    case DataType::kIq4Nl:
      return avx2::kIq4NlPanel;
    case DataType::kIq4Xs:
      return avx2::kIq4XsPanel;
    case DataType::kMxfp4:
      return avx2::kMxfp4Panel;
    default:
      break;
  }
  TROUPE_CHECK(false, "only types with a decoder have such panels");
  return avx2::kQ5_0Panel;
}

void pack_decoded_panel(std::byte* to, const WeightSource& source, size_t panel) {
  const PanelLayout& layout = panel_layout(source.type);
  const size_t row_bytes = source.columns / block_elements(source.type) * block_bytes(source.type);
  const size_t rows = std::min(kPanelRows, source.rows - panel * kPanelRows);
  for (size_t i = 0; i < rows; ++i) {
    const std::byte* row = source.bytes.data() + (panel * kPanelRows + i) * row_bytes;
    for (size_t b = 0; b < source.columns / kQuantBlock; ++b) {
      const DecodedBlock block = decode_block(source.type, row, b);
      std::byte* scales = to + layout.block_at(b);
      put_scales(source.type, to + layout.header_at(b), scales, i, block);
      std::byte* words = scales + layout.scales + i / 8 * layout.half_bytes() + i % 8 * 4;
      put_bits(words, block.code, layout.low_bits, 0);
      if (layout.high_bits > 0)
        put_bits(words + 32 * layout.low_bits, block.code, layout.high_bits, layout.low_bits);
    }
  }
}

DecodedBlock read_packed_block(DataType type, const std::byte* panel, size_t i, size_t b) {
  const PanelLayout& layout = panel_layout(type);
  const std::byte* scales = panel + layout.block_at(b);
  DecodedBlock block;
  read_scales(type, panel + layout.header_at(b), scales, i, block);
  const std::byte* words = scales + layout.scales + i / 8 * layout.half_bytes() + i % 8 * 4;
  add_bits(words, block.code, layout.low_bits, 0);
  if (layout.high_bits > 0)
    add_bits(words + 32 * layout.low_bits, block.code, layout.high_bits, layout.low_bits);
  for (size_t k = 0; k < kQuantBlock; ++k) block.q[k] = value_of_code(type, block.code[k]);
  return block;
}

}  // namespace troupe

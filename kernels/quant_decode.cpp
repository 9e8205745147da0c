// Where the bits of each format lie (ggml-common.h, ggml-quants.c; tools/make_quant_samples.py
// checks it against the gguf package's own reading). Within a super-block `b` is one of 8 blocks of
// 32.
#include "kernels/quant_decode.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "kernels/quant_blocks.h"
#include "kernels/scalar_lane.h"

namespace troupe {

namespace {

// A four-bit float is a sign and one of 0, 1/2, 1, 3/2, 2, 3, 4, 6; here doubled.
constexpr int8_t kFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Denser around 0, as weights are.
constexpr int8_t kNonLinear4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

unsigned nibble(const uint8_t* q, size_t k) {
  return k < 16 ? q[k] & 15U : q[k - 16] >> 4;
}

// Field `i` of `bits` bits of a byte.
unsigned field(uint8_t byte, size_t i, unsigned bits) {
  return (static_cast<unsigned>(byte) >> (i * bits)) & ((1U << bits) - 1);
}

void set_code(DecodedBlock& to, size_t k, unsigned code) {
  to.code[k] = static_cast<uint8_t>(code);
}

void set_scales(DecodedBlock& to, int first, int second) {
  to.scale[0] = static_cast<int8_t>(first);
  to.scale[1] = static_cast<int8_t>(second);
}

void decode(const BlockQ5_0& from, size_t, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  for (size_t k = 0; k < kQuantBlock; ++k)
    set_code(to, k, nibble(from.q, k) | field(from.high[k / 8], k % 8, 1) << 4);
}

void decode(const BlockQ5_1& from, size_t, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  to.dmin = -half_to_float(from.m);
  to.minimum[0] = to.minimum[1] = 1;
  for (size_t k = 0; k < kQuantBlock; ++k)
    set_code(to, k, nibble(from.q, k) | field(from.high[k / 8], k % 8, 1) << 4);
}

void decode(const BlockIq4Nl& from, size_t, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  for (size_t k = 0; k < kQuantBlock; ++k) set_code(to, k, nibble(from.q, k));
}

void decode(const BlockMxfp4& from, size_t, DecodedBlock& to) {
  to.d = e8m0_to_float(from.e);
  for (size_t k = 0; k < kQuantBlock; ++k) set_code(to, k, nibble(from.q, k));
}

void decode(const BlockQ2K& from, size_t b, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  to.dmin = half_to_float(from.dmin);
  const uint8_t* scales = from.scales + 2 * b;
  set_scales(to, scales[0] & 15, scales[1] & 15);
  for (size_t half = 0; half < 2; ++half)
    to.minimum[half] = static_cast<uint8_t>(scales[half] >> 4);
  for (size_t k = 0; k < kQuantBlock; ++k) set_code(to, k, field(from.q[b / 4 * 32 + k], b % 4, 2));
}

// 16 scales of 6 bits: byte s (mod 8) holds the low four of scale s, its upper half those of s + 8;
// bytes 8 to 11 hold the high two, of scales s, s + 4, s + 8 and s + 12 in byte 8 + s.
int scale_of(const BlockQ3K& from, size_t s) {
  const unsigned low = field(from.scales[s % 8], s / 8, 4);
  const unsigned high = field(from.scales[8 + s % 4], s / 4, 2);
  return static_cast<int>(low | high << 4) - 32;
}

void decode(const BlockQ3K& from, size_t b, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  set_scales(to, scale_of(from, 2 * b), scale_of(from, 2 * b + 1));
  for (size_t k = 0; k < kQuantBlock; ++k)
    set_code(to, k, field(from.q[b / 4 * 32 + k], b % 4, 2) | field(from.high[k], b, 1) << 2);
}

// 8 scales and 8 minimums of 6 bits in 12 bytes: the first four of each lie in the low six bits of
// bytes 0-3 and 4-7; of the others the low four bits share bytes 8-11, and the high two are the
// high two of the first eight bytes.
void set_scales_of_6_bits(const uint8_t (&scales)[12], size_t b, DecodedBlock& to) {
  unsigned scale = 0, minimum = 0;
  if (b < 4) {
    scale = scales[b] & 63U;
    minimum = scales[b + 4] & 63U;
  } else {
    scale = (scales[b + 4] & 15U) | (scales[b - 4] >> 6 << 4);
    minimum = (scales[b + 4] >> 4) | (scales[b] >> 6 << 4);
  }
  set_scales(to, static_cast<int>(scale), static_cast<int>(scale));
  to.minimum[0] = to.minimum[1] = static_cast<uint8_t>(minimum);
}

void decode(const BlockQ4K& from, size_t b, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  to.dmin = half_to_float(from.dmin);
  set_scales_of_6_bits(from.scales, b, to);
  for (size_t k = 0; k < kQuantBlock; ++k) set_code(to, k, field(from.q[b / 2 * 32 + k], b % 2, 4));
}

void decode(const BlockQ5K& from, size_t b, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  to.dmin = half_to_float(from.dmin);
  set_scales_of_6_bits(from.scales, b, to);
  for (size_t k = 0; k < kQuantBlock; ++k)
    set_code(to, k, field(from.q[b / 2 * 32 + k], b % 2, 4) | field(from.high[k], b, 1) << 4);
}

void decode(const BlockQ6K& from, size_t b, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  set_scales(to, from.scales[2 * b], from.scales[2 * b + 1]);
  for (size_t k = 0; k < kQuantBlock; ++k)
    set_code(to, k,
             field(from.low[b / 4 * 64 + b % 2 * 32 + k], b % 4 / 2, 4) |
                 field(from.high[b / 4 * 32 + k], b % 4, 2) << 4);
}

void decode(const BlockIq4Xs& from, size_t b, DecodedBlock& to) {
  to.d = half_to_float(from.d);
  const unsigned low = field(from.scales_low[b / 2], b % 2, 4);
  const unsigned high = (static_cast<unsigned>(from.scales_high) >> (2 * b)) & 3U;
  const int scale = static_cast<int>(low | high << 4) - 32;
  set_scales(to, scale, scale);
  for (size_t k = 0; k < kQuantBlock; ++k) set_code(to, k, nibble(from.q + b * 16, k));
}

template <class Block, size_t kElements>
DecodedBlock decoded(DataType type, const std::byte* row, size_t b) {
  constexpr size_t kBlocks = kElements / kQuantBlock;
  Block from;
  std::memcpy(&from, row + b / kBlocks * sizeof(Block), sizeof(Block));
  DecodedBlock to;
  decode(from, b % kBlocks, to);
  for (size_t k = 0; k < kQuantBlock; ++k) to.q[k] = value_of_code(type, to.code[k]);
  return to;
}

}  // namespace

const int8_t* code_table(DataType type) {
  if (type == DataType::kMxfp4) return kFp4;
  return type == DataType::kIq4Nl || type == DataType::kIq4Xs ? kNonLinear4 : nullptr;
}

int8_t value_of_code(DataType type, uint8_t code) {
  if (const int8_t* table = code_table(type)) return table[code & 15];
  const int zero = type == DataType::kQ5_0  ? 16
                   : type == DataType::kQ6K ? 32
                   : type == DataType::kQ3K ? 4
                                            : 0;
  return static_cast<int8_t>(code - zero);
}

std::span<const size_t> factor_places(DataType type) {
  static constexpr size_t kFront[] = {0}, kTwoInFront[] = {0, 2};
  static constexpr size_t kOfQ2K[] = {offsetof(BlockQ2K, d), offsetof(BlockQ2K, dmin)};
  static constexpr size_t kOfQ3K[] = {offsetof(BlockQ3K, d)}, kOfQ6K[] = {offsetof(BlockQ6K, d)};
  switch (type) {
    case DataType::kQ4_1:
    case DataType::kQ5_1:
    case DataType::kQ4K:
    case DataType::kQ5K:
      return kTwoInFront;
    case DataType::kQ2K:
      return kOfQ2K;
    case DataType::kQ3K:
      return kOfQ3K;
    case DataType::kQ6K:
      return kOfQ6K;
    case DataType::kMxfp4:
      return {};
    default:
      return kFront;
  }
}

bool has_decoder(DataType type) {
  return type >= DataType::kQ5_0 && type <= DataType::kMxfp4;
}

Minimums minimums_of(DataType type) {
  switch (type) {
    case DataType::kQ5_1:
    case DataType::kQ4K:
    case DataType::kQ5K:
      return Minimums::kOfBlock;
    case DataType::kQ2K:
      return Minimums::kOfHalves;
    default:
      return Minimums::kNone;
  }
}

DecodedBlock decode_block(DataType type, const std::byte* row, size_t b) {
  switch (type) {
    case DataType::kQ5_0:
      return decoded<BlockQ5_0, kQuantBlock>(type, row, b);
    case DataType::kQ5_1:
      return decoded<BlockQ5_1, kQuantBlock>(type, row, b);
    case DataType::kQ2K:
      return decoded<BlockQ2K, kSuperBlock>(type, row, b);
    case DataType::kQ3K:
      return decoded<BlockQ3K, kSuperBlock>(type, row, b);
    case DataType::kQ4K:
      return decoded<BlockQ4K, kSuperBlock>(type, row, b);
    case DataType::kQ5K:
      return decoded<BlockQ5K, kSuperBlock>(type, row, b);
    case DataType::kQ6K:
      return decoded<BlockQ6K, kSuperBlock>(type, row, b);
    case DataType::kIq4Nl:
      return decoded<BlockIq4Nl, kQuantBlock>(type, row, b);
    case DataType::kIq4Xs:
      return decoded<BlockIq4Xs, kSuperBlock>(type, row, b);
    case DataType::kMxfp4:
      return decoded<BlockMxfp4, kQuantBlock>(type, row, b);
    default:
      break;
  }
  TROUPE_CHECK(false, "only types with a decoder are decoded");
  return {};
}

void dequantise(const DecodedBlock& block, Minimums minimums, float* y) {
  for (size_t k = 0; k < kQuantBlock; ++k) {
    const float scale = block.d * static_cast<float>(block.scale[k / 16]);
    float value = static_cast<float>(block.q[k]) * scale;
    if (minimums != Minimums::kNone)
      value = value - block.dmin * static_cast<float>(block.minimum[k / 16]);
    y[k] = canonical(value);
  }
}

}  // namespace troupe

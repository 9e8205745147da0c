// Weights as they are, and rows of a table as floats: Q8_0 q·d, Q4_0 (q-8)·d, Q4_1 q·d + m, each
// step rounded; the other formats as quant_decode.h says.
#include <cstring>

#include "kernels/checks.h"
#include "kernels/quant_blocks.h"
#include "kernels/quant_decode.h"
#include "kernels/reference/reference_operators.h"
#include "kernels/scalar_lane.h"

namespace troupe {

namespace {

float value_of(float w, size_t) {
  return w;
}
float value_of(uint16_t w, size_t) {
  return half_to_float(w);
}
float value_of(const BlockQ8_0& w, size_t i) {
  return static_cast<float>(w.q[i]) * half_to_float(w.d);
}
int nibble(const uint8_t* q, size_t i) {
  return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}
float value_of(const BlockQ4_0& w, size_t i) {
  return static_cast<float>(nibble(w.q, i) - 8) * half_to_float(w.d);
}
float value_of(const BlockQ4_1& w, size_t i) {
  return static_cast<float>(nibble(w.q, i)) * half_to_float(w.d) + half_to_float(w.m);
}

struct Bf16 {
  uint16_t upper;
};
float value_of(Bf16 w, size_t) {
  return bf16_to_float(w.upper);
}

void read_decoded_row(float* y, DataType type, const std::byte* row, size_t columns) {
  for (size_t b = 0; b < columns / kQuantBlock; ++b)
    dequantise(decode_block(type, row, b), minimums_of(type), y + b * kQuantBlock);
}

template <class Block>
void read_row(float* y, const std::byte* row, size_t columns, size_t elements) {
  for (size_t c = 0; c < columns; ++c) {
    Block block;
    std::memcpy(&block, row + c / elements * sizeof(Block), sizeof(Block));
    y[c] = canonical(value_of(block, c % elements));
  }
}

}  // namespace

Result<std::unique_ptr<Weights>> ReferenceOperators::pack(const WeightSource& source) {
  TROUPE_TRY_VOID(check_weight_source(source));
  return std::unique_ptr<Weights>(std::make_unique<ReferenceWeights>(source));
}

void ReferenceOperators::embed(TensorView<float> y, std::span<const uint32_t> tokens,
                               const Weights& table) {
  check_embed(y, tokens, table);
  const auto& weights = static_cast<const ReferenceWeights&>(table);
  for (size_t r = 0; r < tokens.size(); ++r) {
    float* to = y.row(r).data();
    const std::byte* from = weights.row(tokens[r]);
    switch (weights.type()) {
      case DataType::kF32:
        read_row<float>(to, from, y.columns, 1);
        break;
      case DataType::kF16:
        read_row<uint16_t>(to, from, y.columns, 1);
        break;
      case DataType::kQ8_0:
        read_row<BlockQ8_0>(to, from, y.columns, kQuantBlock);
        break;
      case DataType::kQ4_0:
        read_row<BlockQ4_0>(to, from, y.columns, kQuantBlock);
        break;
      case DataType::kQ4_1:
        read_row<BlockQ4_1>(to, from, y.columns, kQuantBlock);
        break;
      case DataType::kBf16:
        read_row<Bf16>(to, from, y.columns, 1);
        break;
      default:
        read_decoded_row(to, weights.type(), from, y.columns);
        break;
    }
  }
}

}  // namespace troupe

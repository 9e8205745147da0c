// y = x · Wᵀ by N2.
//
// Activations meeting block-quantised weights are quantised per block of 32: d = amax / 127 and
// q = round_half_even(x · (127 / amax)). Where 127 / amax is infinite (amax is 0 or below 4e-37)
// the block is all zero with d = 0. A block that holds NaN or infinity has no scale: its d is NaN
// and its q are 0, so that every output that reads it is NaN.
//
// Formats with whole numbers as scales of 16 or 32 elements multiply the integer sums by them: the
// sum of a block of 32 stays below 2^24, so its conversion to float is exact for all of them
// (largest: Q6_K, 2 · 128 · 16 · 32 · 127 = 16.6 million).
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/checks.h"
#include "kernels/functions.h"
#include "kernels/quant_blocks.h"
#include "kernels/quant_decode.h"
#include "kernels/reference/reference_operators.h"
#include "kernels/scalar_lane.h"
#include "kernels/slices.h"

namespace troupe {

QuantisedBlock quantise_block(const float* x) {
  float amax = 0;
  bool finite = true;
  for (size_t i = 0; i < kQuantBlock; ++i) {
    const float magnitude = std::fabs(x[i]);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    if (magnitude > amax) amax = magnitude;
  }
  QuantisedBlock block;
  if (!finite) {
    block.d = kCanonicalNan;
    return block;
  }
  const float inverse = 127.0F / amax;
  if (!(inverse <= std::numeric_limits<float>::max())) return block;
  block.d = amax / 127.0F;
  for (size_t i = 0; i < kQuantBlock; ++i) {
    block.q[i] = static_cast<int8_t>(round_to_whole(ScalarLane{x[i] * inverse}).value);
    block.sum += block.q[i];
  }
  return block;
}

namespace {

// acc after one more block of a weight row.
float add_block(const BlockQ8_0& w, const QuantisedBlock& x, float acc) {
  int32_t sum = 0;
  for (size_t i = 0; i < kQuantBlock; ++i) sum += int32_t{w.q[i]} * x.q[i];
  return std::fma(static_cast<float>(sum), half_to_float(w.d) * x.d, acc);
}

int32_t nibble_sum(const uint8_t* q, const QuantisedBlock& x) {
  int32_t sum = 0;
  for (size_t i = 0; i < kQuantBlock / 2; ++i)
    sum += (q[i] & 15) * x.q[i] + (q[i] >> 4) * x.q[i + kQuantBlock / 2];
  return sum;
}

float add_block(const BlockQ4_0& w, const QuantisedBlock& x, float acc) {
  const int32_t sum = nibble_sum(w.q, x) - 8 * x.sum;
  return std::fma(static_cast<float>(sum), half_to_float(w.d) * x.d, acc);
}

float add_block(const BlockQ4_1& w, const QuantisedBlock& x, float acc) {
  const float sum = static_cast<float>(nibble_sum(w.q, x));
  acc = std::fma(sum, half_to_float(w.d) * x.d, acc);
  return std::fma(half_to_float(w.m), x.d * static_cast<float>(x.sum), acc);
}

template <class Block>
float dot_quantised(const std::byte* row, const QuantisedBlock* x, size_t blocks) {
  float sums[kSlices] = {};
  for (size_t s = 0; s < kSlices; ++s)
    for (size_t b = slice_begin(s, blocks); b < slice_begin(s + 1, blocks); ++b) {
      Block block;
      std::memcpy(&block, row + b * sizeof(Block), sizeof(Block));
      sums[s] = add_block(block, x[b], sums[s]);
    }
  return combine_slices(sums);
}

// Any format with a decoder.
float add_block(const DecodedBlock& w, Minimums minimums, const QuantisedBlock& x, float acc) {
  int32_t sums[2] = {}, x_sums[2] = {};
  for (size_t k = 0; k < kQuantBlock; ++k) {
    sums[k / 16] += int32_t{w.q[k]} * x.q[k];
    x_sums[k / 16] += x.q[k];
  }
  const int32_t sum = w.scale[0] * sums[0] + w.scale[1] * sums[1];
  acc = std::fma(static_cast<float>(sum), w.d * x.d, acc);
  if (minimums == Minimums::kOfBlock)
    return std::fma(-(w.dmin * static_cast<float>(w.minimum[0])), x.d * static_cast<float>(x.sum),
                    acc);
  if (minimums == Minimums::kOfHalves)
    for (size_t half = 0; half < 2; ++half)
      acc = std::fma(-(w.dmin * static_cast<float>(w.minimum[half])),
                     x.d * static_cast<float>(x_sums[half]), acc);
  return acc;
}

// Once for all rows of x; empty where the format has no decoder.
std::vector<DecodedBlock> decoded_row(const ReferenceWeights& weights, size_t n) {
  std::vector<DecodedBlock> blocks;
  if (!has_decoder(weights.type())) return blocks;
  for (size_t b = 0; b < weights.columns() / kQuantBlock; ++b)
    blocks.push_back(decode_block(weights.type(), weights.row(n), b));
  return blocks;
}

float dot_decoded(std::span<const DecodedBlock> row, Minimums minimums, const QuantisedBlock* x) {
  float sums[kSlices] = {};
  for (size_t s = 0; s < kSlices; ++s)
    for (size_t b = slice_begin(s, row.size()); b < slice_begin(s + 1, row.size()); ++b)
      sums[s] = add_block(row[b], minimums, x[b], sums[s]);
  return combine_slices(sums);
}

struct Bf16 {
  uint16_t upper;
};
float to_float(Bf16 w) {
  return bf16_to_float(w.upper);
}
float to_float(float w) {
  return w;
}
float to_float(uint16_t w) {
  return half_to_float(w);
}

template <class Element>
float dot_float(const std::byte* row, const float* x, size_t k_end) {
  float sums[kSlices] = {};
  const size_t blocks = slice_blocks(k_end);
  for (size_t s = 0; s < kSlices; ++s) {
    const size_t end = std::min(slice_begin(s + 1, blocks) * kSliceBlock, k_end);
    for (size_t k = slice_begin(s, blocks) * kSliceBlock; k < end; ++k) {
      Element w;
      std::memcpy(&w, row + k * sizeof(Element), sizeof(Element));
      sums[s] = std::fma(to_float(w), x[k], sums[s]);
    }
  }
  return combine_slices(sums);
}

float dot(const ReferenceWeights& weights, size_t n, std::span<const DecodedBlock> decoded,
          const float* x, const QuantisedBlock* xq) {
  const std::byte* row = weights.row(n);
  const size_t k = weights.columns();
  switch (weights.type()) {
    case DataType::kF32:
      return dot_float<float>(row, x, k);
    case DataType::kF16:
      return dot_float<uint16_t>(row, x, k);
    case DataType::kQ8_0:
      return dot_quantised<BlockQ8_0>(row, xq, k / kQuantBlock);
    case DataType::kQ4_0:
      return dot_quantised<BlockQ4_0>(row, xq, k / kQuantBlock);
    case DataType::kQ4_1:
      return dot_quantised<BlockQ4_1>(row, xq, k / kQuantBlock);
    case DataType::kBf16:
      return dot_float<Bf16>(row, x, k);
    default:
      return dot_decoded(decoded, minimums_of(weights.type()), xq);
  }
}

}  // namespace

void ReferenceOperators::matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) {
  check_matmul(outputs, x);
  const size_t blocks = x.columns / kQuantBlock;
  std::vector<QuantisedBlock> xq(x.rows * blocks);
  for (size_t r = 0; r < x.rows; ++r)
    for (size_t b = 0; b < blocks; ++b)
      xq[r * blocks + b] = quantise_block(x.row(r).data() + b * kQuantBlock);
  for (const MatmulOutput& output : outputs) {
    const auto& weights = static_cast<const ReferenceWeights&>(*output.weights);
    for (size_t n = 0; n < weights.rows(); ++n) {
      const std::vector<DecodedBlock> decoded = decoded_row(weights, n);
      for (size_t r = 0; r < x.rows; ++r)
        output.y.row(r)[n] =
            canonical(dot(weights, n, decoded, x.row(r).data(), xq.data() + r * blocks));
    }
  }
}

}  // namespace troupe

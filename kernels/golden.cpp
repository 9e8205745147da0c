#include "kernels/golden.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/prng.h"
#include "kernels/quant_blocks.h"
#include "kernels/quant_decode.h"

namespace troupe {
namespace {

// Rows that take every path of a kernel: one, a few, more than a vector's lanes. Columns that are
// no multiple of the slices' stride (N2), positions past a page (N5).
constexpr std::array<size_t, 3> kRowCounts{1, 5, 19};
constexpr size_t kOutputs = 40, kColumns = 160, kHeads = 4, kKvHeads = 2, kHeadDim = 16;
constexpr uint32_t kPositions = 70;

// Numbers in [-1, 1) from nowhere but their index.
class Draws {
 public:
  float next() { return philox_uniform(kSeed, index_++, 0) * 2 - 1; }
  uint8_t byte() { return static_cast<uint8_t>(philox_uniform(kSeed, index_++, 0) * 256); }
  std::vector<float> floats(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = next();
    return values;
  }

 private:
  static constexpr uint64_t kSeed = 20261201;
  uint64_t index_ = 0;
};

constexpr std::array kFirstTypes{DataType::kF32, DataType::kF16, DataType::kQ8_0, DataType::kQ4_0,
                                 DataType::kQ4_1};
constexpr std::array kLaterTypes{DataType::kBf16,  DataType::kQ5_0, DataType::kQ5_1,
                                 DataType::kQ2K,   DataType::kQ3K,  DataType::kQ4K,
                                 DataType::kQ5K,   DataType::kQ6K,  DataType::kIq4Nl,
                                 DataType::kIq4Xs, DataType::kMxfp4};
static_assert(kFirstTypes.size() + kLaterTypes.size() == kDataTypes.size());

std::vector<std::byte> random_bytes(DataType type, size_t columns, Draws& draws) {
  std::vector<std::byte> bytes(kOutputs * columns / block_elements(type) * block_bytes(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draws.byte());
  return bytes;
}

// A matrix of a later type, as a file would hold it: every bit drawn, but finite factors.
std::vector<std::byte> later_weights_of(DataType type, size_t columns, Draws& draws) {
  std::vector<std::byte> bytes = random_bytes(type, columns, draws);
  const size_t step = block_bytes(type);
  for (size_t at = 0; at < bytes.size(); at += step) {
    if (type == DataType::kBf16) {
      const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(draws.next()) >> 16);
      std::memcpy(bytes.data() + at, &upper, sizeof upper);
      continue;
    }
    if (type == DataType::kMxfp4) bytes[at] = static_cast<std::byte>(120 + draws.byte() % 8);
    for (const size_t place : factor_places(type)) {
      const uint16_t half = float_to_half(draws.next() / 16);
      std::memcpy(bytes.data() + at + place, &half, sizeof half);
    }
  }
  return bytes;
}

// A matrix of a first type, as a file would hold it.
std::vector<std::byte> weights_of(DataType type, Draws& draws) {
  std::vector<std::byte> bytes = random_bytes(type, kColumns, draws);
  const size_t step = block_bytes(type);
  for (size_t at = 0; at < bytes.size(); at += step) {
    const float scale = draws.next() / 16;
    const uint16_t half = float_to_half(scale), other = float_to_half(scale / 4);
    if (type == DataType::kF32)
      std::memcpy(bytes.data() + at, &scale, sizeof scale);
    else
      std::memcpy(bytes.data() + at, &half, sizeof half);
    if (type == DataType::kQ4_1) std::memcpy(bytes.data() + at + sizeof half, &other, sizeof other);
  }
  return bytes;
}

class Golden {
 public:
  explicit Golden(Operators& operators) : operators_(operators) {}

  Result<uint64_t> run() {
    for (const DataType type : kFirstTypes)
      TROUPE_TRY_VOID(products(type, weights_of(type, draws_), kColumns));
    rows();
    attention();
    return digest_;
  }

  Result<uint64_t> run_later_types() {
    for (const DataType type : kLaterTypes) {
      const size_t columns = block_elements(type) == kSuperBlock ? 2 * kSuperBlock : kColumns;
      TROUPE_TRY_VOID(products(type, later_weights_of(type, columns, draws_), columns));
    }
    return digest_;
  }

 private:
  void take(const std::vector<float>& values) {
    digest_ = digest64(std::as_bytes(std::span(values)), digest_);
  }

  Result<void> products(DataType type, const std::vector<std::byte>& bytes, size_t columns) {
    TROUPE_TRY(
        const auto weights,
        operators_.pack({.type = type, .rows = kOutputs, .columns = columns, .bytes = bytes}));
    for (const size_t count : kRowCounts) {
      const std::vector<float> x = draws_.floats(count * columns);
      std::vector<float> y(count * kOutputs);
      const MatmulOutput output{{y.data(), count, kOutputs}, weights.get()};
      operators_.matmul({&output, 1}, {x.data(), count, columns});
      take(y);
    }
    const std::array<uint32_t, 3> tokens{0, kOutputs - 1, 7};
    std::vector<float> embedded(tokens.size() * columns);
    operators_.embed({embedded.data(), tokens.size(), columns}, tokens, *weights);
    take(embedded);
    return {};
  }

  void rows() {
    for (const size_t count : kRowCounts) {
      const std::vector<float> x = draws_.floats(count * kColumns), up = draws_.floats(x.size());
      const std::vector<float> weight = draws_.floats(kColumns);
      std::vector<float> y(x.size());
      const TensorView<float> out{y.data(), count, kColumns};
      operators_.rms_norm(out, {x.data(), count, kColumns}, weight, 1e-5F);
      operators_.add(out, {up.data(), count, kColumns});
      operators_.swiglu(out, out, {up.data(), count, kColumns});
      take(y);
    }
  }

  // A prompt of some positions, then one more.
  void attention() {
    std::vector<uint16_t> keys(2 * kKvBlockTokens * kKvHeads * kHeadDim), values(keys.size());
    const KvLayer layer{keys.data(), values.data(), 2, kKvHeads, kHeadDim};
    const std::array<uint32_t, 2> blocks{1, 0};
    for (const uint32_t first : {0U, kPositions - 1}) {
      const uint32_t count = first == 0 ? kPositions - 1 : 1;
      std::vector<RowPlace> places;
      for (uint32_t r = 0; r < count; ++r) places.push_back({first + r, blocks});
      std::vector<float> q = draws_.floats(count * kHeads * kHeadDim);
      std::vector<float> k = draws_.floats(count * kKvHeads * kHeadDim);
      const std::vector<float> v = draws_.floats(k.size());
      const RopeParameters rope{.head_dim = kHeadDim, .rotary_dims = kHeadDim};
      operators_.rope({q.data(), count, kHeads * kHeadDim}, places, rope);
      operators_.rope({k.data(), count, kKvHeads * kHeadDim}, places, rope);
      operators_.store_kv(layer, {k.data(), count, kKvHeads * kHeadDim},
                          {v.data(), count, kKvHeads * kHeadDim}, places);
      std::vector<float> y(q.size());
      operators_.attention({y.data(), count, kHeads * kHeadDim},
                           {q.data(), count, kHeads * kHeadDim}, layer, places, 0.25F);
      take(y);
    }
  }

  Operators& operators_;
  Draws draws_;
  uint64_t digest_ = 0;
};

}  // namespace

Result<uint64_t> golden_digest(Operators& operators) {
  return Golden(operators).run();
}

Result<uint64_t> golden_formats_digest(Operators& operators) {
  return Golden(operators).run_later_types();
}

Result<void> check_golden(Operators& operators) {
  TROUPE_TRY(const uint64_t digest, golden_digest(operators));
  TROUPE_TRY(const uint64_t formats, golden_formats_digest(operators));
  if (digest == kGoldenExact1 && formats == kGoldenFormats1) return {};
  const bool first = digest != kGoldenExact1;
  return Error{
      ErrorCode::kUnavailable,
      fmt::format("this machine computes other bits than the profile exact/1: its golden "
                  "vector{} is {}, computed by {} kernels was {}",
                  first ? "" : " of formats", to_hex(first ? kGoldenExact1 : kGoldenFormats1),
                  operators.name(), to_hex(first ? digest : formats))};
}

}  // namespace troupe

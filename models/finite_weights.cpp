#include "models/finite_weights.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/quant_decode.h"

namespace troupe {

namespace {

// Whether 16 bits at `at`, and every `step` bytes on, are finite: not all ones under the mask of
// their exponent. Without a branch each, so that it costs little more than reading them.
bool is_finite(const std::byte* at, size_t count, size_t step, uint16_t mask) {
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, at + i * step, sizeof bits);
    finite = finite & ((bits & mask) != mask);
  }
  return finite;
}

constexpr uint16_t kHalfExponent = 0x7C00, kFloatExponent = 0x7F80;  // the latter of upper halves

// MXFP4's scale is an exponent, of which 255 is NaN (OCP microscaling specification, 5.4.1).
bool is_finite_mxfp4(const std::byte* at, size_t blocks, size_t size) {
  bool finite = true;
  for (size_t b = 0; b < blocks; ++b) finite = finite & (at[b * size] != std::byte{255});
  return finite;
}

// Blocks that follow one another.
bool is_finite(DataType type, const std::byte* at, size_t blocks) {
  const size_t size = block_bytes(type);
  switch (type) {
    case DataType::kF32:  // little-endian: the upper half comes second
      return is_finite(at + 2, blocks, size, kFloatExponent);
    case DataType::kBf16:
      return is_finite(at, blocks, size, kFloatExponent);
    case DataType::kF16:
      return is_finite(at, blocks, size, kHalfExponent);
    case DataType::kMxfp4:
      return is_finite_mxfp4(at, blocks, size);
    default:
      break;
  }
  bool finite = true;
  for (const size_t place : factor_places(type))
    finite = finite & is_finite(at + place, blocks, size, kHalfExponent);
  return finite;
}

}  // namespace

Result<void> check_finite_weights(const WeightSource& source) {
  const size_t blocks = source.columns / block_elements(source.type);
  const size_t size = block_bytes(source.type);
  for (size_t r = 0; r < source.rows; ++r) {
    const std::byte* row = source.bytes.data() + r * blocks * size;
    if (is_finite(source.type, row, blocks)) continue;
    size_t b = 0;
    while (is_finite(source.type, row + b * size, 1)) ++b;
    const bool scaled = block_elements(source.type) > 1;
    return Error{
        ErrorCode::kInvalidFile,
        fmt::format("{} {} of row {} {} NaN or infinite, allowed are finite numbers",
                    scaled ? "block" : "element", b, r, scaled ? "has a scale that is" : "is")};
  }
  return {};
}

}  // namespace troupe

#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "kernels/quant_decode.h"
#include "tests/support/quantise_decoded.h"

namespace troupe::test {

namespace {

void put_bytes(std::vector<std::byte>& out, ByteSpan bytes) {
  const size_t end = out.size();
  out.resize(end + bytes.size());
  if (!bytes.empty()) std::memcpy(out.data() + end, bytes.data(), bytes.size());
}

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  put_bytes(out, std::as_bytes(std::span<const T, 1>(&value, 1)));
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  put_bytes(out, as_byte_span(text));
}

uint64_t aligned(uint64_t size) {
  return (size + GgufWriter::kAlignment - 1) / GgufWriter::kAlignment * GgufWriter::kAlignment;
}

constexpr size_t kBlock = 32;
using Block = std::span<const float, kBlock>;

uint8_t nibble(float value) {
  return static_cast<uint8_t>(std::clamp(value, 0.0F, 15.0F));
}

// Elements i and i + 16 share byte i: low and high half.
void put_nibbles(std::vector<std::byte>& out, const std::array<uint8_t, kBlock>& nibbles) {
  for (size_t i = 0; i < kBlock / 2; ++i)
    put(out, static_cast<uint8_t>(nibbles[i] | (nibbles[i + kBlock / 2] << 4)));
}

void put_q8_0(std::vector<std::byte>& out, Block x) {
  float largest = 0.0F;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127.0F, inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  put(out, half_of(scale));
  for (const float value : x) put(out, static_cast<int8_t>(std::nearbyint(value * inverse)));
}

// The value of largest magnitude becomes -8 exactly.
void put_q4_0(std::vector<std::byte>& out, Block x) {
  float extreme = 0.0F;
  for (const float value : x)
    if (std::fabs(value) > std::fabs(extreme)) extreme = value;
  const float scale = extreme / -8.0F, inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  put(out, half_of(scale));
  std::array<uint8_t, kBlock> nibbles{};
  for (size_t i = 0; i < kBlock; ++i) nibbles[i] = nibble(x[i] * inverse + 8.5F);
  put_nibbles(out, nibbles);
}

void put_q4_1(std::vector<std::byte>& out, Block x) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const float scale = (*most - *least) / 15.0F, inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  put(out, half_of(scale));
  put(out, half_of(*least));
  std::array<uint8_t, kBlock> nibbles{};
  for (size_t i = 0; i < kBlock; ++i) nibbles[i] = nibble((x[i] - *least) * inverse + 0.5F);
  put_nibbles(out, nibbles);
}

}  // namespace

uint16_t half_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U) return static_cast<uint16_t>(sign | 0x7E00U);   // NaN
  if (magnitude >= 0x4780'0000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 2^16 and above
  uint32_t mantissa = 0, dropped = 0;
  if (magnitude < 0x3880'0000U) {  // below 2^-14: a subnormal half
    const uint32_t shift = 126U - (magnitude >> 23);
    if (shift > 24) return sign;
    const uint32_t full = (magnitude & 0x7F'FFFFU) | 0x80'0000U;
    mantissa = full >> shift;
    dropped = (full & ((1U << shift) - 1)) << (32 - shift);
  } else {
    mantissa = (magnitude - 0x3800'0000U) >> 13;
    dropped = magnitude << 19;
  }
  // Round half to even; a carry runs into the exponent, up to infinity, as it should.
  if (dropped > 0x8000'0000U || (dropped == 0x8000'0000U && (mantissa & 1U) != 0)) ++mantissa;
  return static_cast<uint16_t>(sign | mantissa);
}

float float_of(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 31U, mantissa = half & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F80'0000U | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::vector<std::byte> quantise(DataType type, std::span<const float> values) {
  std::vector<std::byte> out;
  if (type == DataType::kF32) {
    for (const float value : values) put(out, value);
    return out;
  }
  if (type == DataType::kF16) {
    for (const float value : values) put(out, half_of(value));
    return out;
  }
  if (type == DataType::kBf16) {  // the upper half, ties to even
    for (const float value : values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      put(out, static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16));
    }
    return out;
  }
  if (has_decoder(type)) return quantise_decoded(type, values);
  TROUPE_CHECK(values.size() % kBlock == 0, "quantised values come in blocks of 32");
  for (size_t i = 0; i < values.size(); i += kBlock) {
    const Block block = values.subspan(i).first<kBlock>();
    if (type == DataType::kQ8_0) put_q8_0(out, block);
    if (type == DataType::kQ4_0) put_q4_0(out, block);
    if (type == DataType::kQ4_1) put_q4_1(out, block);
  }
  return out;
}

void GgufWriter::start_entry(std::string_view key, GgufType type) {
  put_text(entries_, key);
  put(entries_, static_cast<uint32_t>(type));
  ++entry_count_;
}

void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  start_entry(key, GgufType::kU32);
  put(entries_, value);
}

void GgufWriter::add_u64(std::string_view key, uint64_t value) {
  start_entry(key, GgufType::kU64);
  put(entries_, value);
}

void GgufWriter::add_f32(std::string_view key, float value) {
  start_entry(key, GgufType::kF32);
  put(entries_, value);
}

void GgufWriter::add_bool(std::string_view key, bool value) {
  start_entry(key, GgufType::kBool);
  put(entries_, static_cast<uint8_t>(value ? 1 : 0));
}

void GgufWriter::add_text(std::string_view key, std::string_view value) {
  start_entry(key, GgufType::kText);
  put_text(entries_, value);
}

void GgufWriter::add_texts(std::string_view key, std::span<const std::string> values) {
  start_entry(key, GgufType::kArray);
  put(entries_, static_cast<uint32_t>(GgufType::kText));
  put(entries_, uint64_t{values.size()});
  for (const std::string& value : values) put_text(entries_, value);
}

void GgufWriter::add_i32s(std::string_view key, std::span<const int32_t> values) {
  start_entry(key, GgufType::kArray);
  put(entries_, static_cast<uint32_t>(GgufType::kI32));
  put(entries_, uint64_t{values.size()});
  for (const int32_t value : values) put(entries_, value);
}

void GgufWriter::add_raw(std::string_view key, GgufType type, ByteSpan bytes) {
  start_entry(key, type);
  put_bytes(entries_, bytes);
}

void GgufWriter::add_tensor(std::string_view name, std::span<const uint64_t> shape, uint32_t type,
                            std::vector<std::byte> bytes) {
  tensors_.push_back({std::string(name), {shape.begin(), shape.end()}, type, std::move(bytes)});
}

void GgufWriter::add_floats(std::string_view name, size_t rows, size_t columns, DataType type,
                            std::span<const float> values) {
  TROUPE_CHECK(values.size() == std::max<size_t>(rows, 1) * columns, "values fill the shape");
  std::vector<uint64_t> shape{columns};
  if (rows != 0) shape.push_back(rows);
  add_tensor(name, shape, ggml_type_number(type), quantise(type, values));
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> out;
  put(out, uint32_t{0x46554747});  // "GGUF"
  put(out, uint32_t{3});
  put(out, uint64_t{tensors_.size()});
  put(out, entry_count_);
  put_bytes(out, entries_);
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put_text(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t dimension : tensor.shape) put(out, dimension);
    put(out, tensor.type);
    put(out, offset);
    offset = aligned(offset + tensor.bytes.size());
  }
  for (const Tensor& tensor : tensors_) {
    out.resize(static_cast<size_t>(aligned(out.size())));
    put_bytes(out, tensor.bytes);
  }
  return out;
}

Result<void> GgufWriter::write(const std::string& path) const {
  const std::vector<std::byte> content = bytes();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return Error{ErrorCode::kIo, "cannot write " + path};
  return {};
}

}  // namespace troupe::test

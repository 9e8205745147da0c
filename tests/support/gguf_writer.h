// Writes GGUF version 3 files for tests and tools: what models/gguf.h reads. Keys and tensors keep
// their order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/tensor.h"
#include "models/gguf.h"

namespace troupe::test {

class GgufWriter {
 public:
  void add_u32(std::string_view key, uint32_t value);
  void add_u64(std::string_view key, uint64_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_text(std::string_view key, std::string_view value);
  void add_texts(std::string_view key, std::span<const std::string> values);
  void add_i32s(std::string_view key, std::span<const int32_t> values);
  // A value of any type, `bytes` being its encoding: for what no other function here writes.
  void add_raw(std::string_view key, GgufType type, ByteSpan bytes);

  // `shape` in ggml's order (columns first); `type` is ggml's number.
  void add_tensor(std::string_view name, std::span<const uint64_t> shape, uint32_t type,
                  std::vector<std::byte> bytes);
  // Rounds floats [rows][columns] to `type`; rank 1 if rows is 0.
  void add_floats(std::string_view name, size_t rows, size_t columns, DataType type,
                  std::span<const float> values);

  std::vector<std::byte> bytes() const;
  Result<void> write(const std::string& path) const;

  static constexpr uint64_t kAlignment = 32;

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type;
    std::vector<std::byte> bytes;
  };
  void start_entry(std::string_view key, GgufType type);

  std::vector<std::byte> entries_;
  uint64_t entry_count_ = 0;
  std::vector<Tensor> tensors_;
};

// Nearest half, ties to even; overflow gives infinity.
uint16_t half_of(float value);
float float_of(uint16_t half);
// `values` in blocks of `type`, a multiple of the block length: Q8_0, Q4_0 and Q4_1 as ggml's
// reference quantisers make them, the others by plain rounding.
std::vector<std::byte> quantise(DataType type, std::span<const float> values);

}  // namespace troupe::test

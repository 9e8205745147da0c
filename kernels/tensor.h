// Element types and views of row-major matrices. A view owns nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace troupe {

enum class DataType : uint8_t {
  kF32,
  kF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kBf16,
  kQ5_0,
  kQ5_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
};

// Every one of them, for tables and tests.
inline constexpr std::array kDataTypes{
    DataType::kF32,  DataType::kF16,   DataType::kQ8_0,  DataType::kQ4_0,
    DataType::kQ4_1, DataType::kBf16,  DataType::kQ5_0,  DataType::kQ5_1,
    DataType::kQ2K,  DataType::kQ3K,   DataType::kQ4K,   DataType::kQ5K,
    DataType::kQ6K,  DataType::kIq4Nl, DataType::kIq4Xs, DataType::kMxfp4};

const char* to_string(DataType type);

// Elements a block holds and bytes it takes; 1 element for the float types.
size_t block_elements(DataType type);
size_t block_bytes(DataType type);

// Row-major, contiguous: element (r, c) at data[r * columns + c].
template <class T>
struct TensorView {
  T* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;

  std::span<T> row(size_t r) const { return {data + r * columns, columns}; }
  size_t size() const { return rows * columns; }
  operator TensorView<const T>() const {
    return {data, rows, columns};
  }  // NOLINT: as with pointers
};

// A weight matrix as a file holds it: `rows` rows of `columns` elements, blocks along a row.
struct WeightSource {
  DataType type = DataType::kF32;
  size_t rows = 0;     // outputs
  size_t columns = 0;  // inputs (K); a multiple of block_elements(type)
  ByteSpan bytes;      // exactly rows * columns / block_elements * block_bytes
};

}  // namespace troupe

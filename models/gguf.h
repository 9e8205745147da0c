// GGUF files (version 2 and 3, little-endian): metadata and tensors of a model, read in place from
// a mapped file, or from the files that gguf-split cut it into. Specification: ggml's docs/gguf.md.
// The reader trusts nothing: every count, length, offset and alignment is compared with the bytes
// that are there before memory is taken, so a file costs at most a small multiple of its own
// header, and a bad one is a one-line error that says what was seen and what was allowed.
//
// Strings and tensor bytes are views into the file; they live as long as any copy of the GgufFile.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "kernels/tensor.h"

namespace troupe {

// Limits on what a header may announce.
inline constexpr uint64_t kGgufKeysMax = 65'536;
inline constexpr uint64_t kGgufTensorsMax = 65'536;
inline constexpr uint64_t kGgufKeyBytesMax = 65'535;
inline constexpr uint64_t kGgufTensorNameBytesMax = 255;
inline constexpr uint32_t kGgufRankMax = 4;
inline constexpr uint32_t kGgufArrayDepthMax = 4;
inline constexpr uint64_t kGgufInnerArraysMax = 65'536;  // arrays inside arrays, in the whole file
inline constexpr uint64_t kGgufAlignmentMax = 1 << 20;
inline constexpr uint64_t kGgufPartsMax = 1'000;

// The numbers are those of the file format.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kText = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

const char* to_string(GgufType type);
// Bytes of a scalar; 0 for texts and arrays.
size_t scalar_bytes(GgufType type);

struct GgufValue;

struct GgufArray {
  GgufType element = GgufType::kU8;
  uint64_t count = 0;
  ByteSpan scalars;  // [count] packed little-endian scalars, not aligned; else empty
  std::vector<std::string_view> texts;  // [count] if element is kText
  std::vector<GgufArray> arrays;        // [count] if element is kArray
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  ByteSpan scalar;        // the value's bytes, if it is a scalar
  std::string_view text;  // if kText
  GgufArray array;        // if kArray

  // Widened scalars. kInvalidFile if the type does not fit: a negative number is no unsigned
  // integer, a fraction no integer. number() takes every integer and float type.
  Result<uint64_t> unsigned_integer() const;
  Result<int64_t> signed_integer() const;
  Result<double> number() const;
  Result<bool> boolean() const;
};

// Element i of an array of scalars as a value of its own; i < count.
GgufValue element_of(const GgufArray& array, uint64_t i);

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// One tensor, with ggml's order of dimensions: shape[0] is the number of columns, along which
// blocks lie.
struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;                                     // ggml's number
  uint32_t rank = 0;                                     // 1 to kGgufRankMax
  std::array<uint64_t, kGgufRankMax> shape{1, 1, 1, 1};  // dimensions past the rank are 1
  ByteSpan bytes;                                        // exactly what the type and shape need
  uint32_t part = 0;                                     // of a split file, from 0

  uint64_t columns() const { return shape[0]; }
  uint64_t rows() const { return shape[1] * shape[2] * shape[3]; }

  // kInvalidFile, with the type's name, if it is none of the types the kernels compute with.
  Result<DataType> data_type() const;
  // A tensor of rank 1 (one row) or 2 as the kernels take weights; errors as data_type(), and rank
  // over 2.
  Result<WeightSource> weight_source() const;
};

// Text from a file as a message may show it: one line of ASCII, cut after `bytes_max` bytes.
std::string printable(std::string_view text, size_t bytes_max = 64);

// "Q4_K", or "type 99" for a number this version does not know.
std::string ggml_type_name(uint32_t type);
uint32_t ggml_type_number(DataType type);

class GgufFile {
 public:
  // Errors: those of MappedFile::open, and kInvalidFile. Messages start with the path. The first
  // part of a split model (…-00001-of-0000N.gguf) opens them all; they lie side by side.
  static Result<GgufFile> open(const std::string& path);
  // Reads bytes in memory, which must outlive the file and its copies; all parts, in order, of a
  // split model.
  static Result<GgufFile> parse(ByteSpan bytes);
  static Result<GgufFile> parse_parts(std::span<const ByteSpan> parts);

  // Metadata. Errors: kNotFound if the key is absent, kInvalidFile if its type is another one.
  bool has(std::string_view key) const { return value(key) != nullptr; }
  const GgufValue* value(std::string_view key) const;  // null if absent
  Result<uint64_t> unsigned_integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;
  Result<std::span<const std::string_view>> texts(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> numbers(std::string_view key) const;
  // In the order of the file.
  std::span<const GgufEntry> entries() const;

  const GgufTensor* find(std::string_view name) const;  // null if absent
  std::span<const GgufTensor> tensors() const;          // in the order of the file

  uint32_t version() const;
  uint64_t alignment() const;
  ByteSpan bytes() const;  // the whole file; the first part of a split one
  size_t parts() const;    // 1 unless split
  ByteSpan part_bytes(size_t part) const;
  uint64_t total_bytes() const;  // of all parts
  // The first part's mapping; null if it came from memory.
  const MappedFile* mapping() const;
  // A tensor's pages were read; they can come again from the file if someone else wants them.
  void dont_need(const GgufTensor& tensor) const;
  // Names the content: 32 hexadecimal digits over every byte. Reads the whole file once: call it
  // once.
  std::string content_id() const;

 private:
  struct Contents;
  friend class GgufParser;
  friend class GgufReading;
  explicit GgufFile(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  Result<const GgufValue*> required(std::string_view key) const;
  Result<const GgufArray*> required_array(std::string_view key) const;

  std::shared_ptr<const Contents> contents_;
};

}  // namespace troupe

// GGUF's scalar types and ggml's tensor types: names, sizes, conversions.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "models/gguf.h"
#include "models/gguf_internal.h"

namespace troupe {

namespace {

template <class T>
T load(ByteSpan bytes) {
  T value;
  TROUPE_CHECK(bytes.size() == sizeof(T), "the parser cut a scalar to its size");
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

Error wrong_type(GgufType type, const char* wanted) {
  return Error{ErrorCode::kInvalidFile, fmt::format("type {}, needed {}", to_string(type), wanted)};
}

// ggml's tensor types that have a fixed block layout; the sizes are those of ggml-common.h.
constexpr GgmlTypeLayout kLayouts[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};

}  // namespace

const GgmlTypeLayout* ggml_type_layout(uint32_t type) {
  for (const GgmlTypeLayout& layout : kLayouts)
    if (layout.type == type) return &layout;
  return nullptr;
}

std::string ggml_type_name(uint32_t type) {
  const GgmlTypeLayout* layout = ggml_type_layout(type);
  return layout != nullptr ? layout->name : fmt::format("type {}", type);
}

const char* to_string(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kText:
      return "text";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown";
}

size_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kText:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

Result<int64_t> GgufValue::signed_integer() const {
  switch (type) {
    case GgufType::kU8:
      return int64_t{load<uint8_t>(scalar)};
    case GgufType::kI8:
      return int64_t{load<int8_t>(scalar)};
    case GgufType::kU16:
      return int64_t{load<uint16_t>(scalar)};
    case GgufType::kI16:
      return int64_t{load<int16_t>(scalar)};
    case GgufType::kU32:
      return int64_t{load<uint32_t>(scalar)};
    case GgufType::kI32:
      return int64_t{load<int32_t>(scalar)};
    case GgufType::kI64:
      return load<int64_t>(scalar);
    case GgufType::kU64: {
      const auto wide = load<uint64_t>(scalar);
      if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return Error{ErrorCode::kInvalidFile, fmt::format("value {}, limit 2^63 - 1", wide)};
      return static_cast<int64_t>(wide);
    }
    default:
      return wrong_type(type, "an integer");
  }
}

Result<uint64_t> GgufValue::unsigned_integer() const {
  if (type == GgufType::kU64) return load<uint64_t>(scalar);
  TROUPE_TRY(const int64_t wide, signed_integer());
  if (wide < 0)
    return Error{ErrorCode::kInvalidFile, fmt::format("value {}, needed 0 or more", wide)};
  return static_cast<uint64_t>(wide);
}

Result<double> GgufValue::number() const {
  if (type == GgufType::kF32) return double{load<float>(scalar)};
  if (type == GgufType::kF64) return load<double>(scalar);
  if (type == GgufType::kU64) return static_cast<double>(load<uint64_t>(scalar));
  const Result<int64_t> integer = signed_integer();
  if (!integer.ok()) return wrong_type(type, "a number");
  return static_cast<double>(integer.value());
}

Result<bool> GgufValue::boolean() const {
  if (type != GgufType::kBool) return wrong_type(type, "bool");
  return load<uint8_t>(scalar) != 0;
}

GgufValue element_of(const GgufArray& array, uint64_t i) {
  TROUPE_CHECK(i < array.count && array.element != GgufType::kArray, "an element that is there");
  GgufValue value;
  value.type = array.element;
  if (array.element == GgufType::kText) {
    value.text = array.texts[static_cast<size_t>(i)];
  } else {
    const size_t size = scalar_bytes(array.element);
    value.scalar = array.scalars.subspan(static_cast<size_t>(i) * size, size);
  }
  return value;
}

Result<DataType> GgufTensor::data_type() const {
  switch (type) {
    case 0:
      return DataType::kF32;
    case 1:
      return DataType::kF16;
    case 2:
      return DataType::kQ4_0;
    case 3:
      return DataType::kQ4_1;
    case 8:
      return DataType::kQ8_0;
    default:
      break;
  }
  return Error{ErrorCode::kInvalidFile,
               fmt::format("tensor '{}' is {}; supported are F32, F16, Q8_0, Q4_0, Q4_1", name,
                           ggml_type_name(type))};
}

Result<WeightSource> GgufTensor::weight_source() const {
  TROUPE_TRY(const DataType data, data_type());
  if (rank > 2)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("tensor '{}' has {} dimensions, a matrix has 1 or 2", name, rank)};
  return WeightSource{data, static_cast<size_t>(rows()), static_cast<size_t>(columns()), bytes};
}

}  // namespace troupe

// GGUF's scalar types and ggml's tensor types: names, sizes, conversions.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
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

// ggml's tensor types that are read; sizes are those of ggml-common.h. Integers and doubles are
// carried, not computed with.
constexpr GgmlTypeLayout kOtherLayouts[] = {
    {24, "I8", 1, 1}, {25, "I16", 1, 2}, {26, "I32", 1, 4}, {27, "I64", 1, 8}, {28, "F64", 1, 8},
};

struct WeightNumber {
  uint32_t number;  // ggml's
  DataType type;
};
constexpr WeightNumber kWeightNumbers[] = {
    {0, DataType::kF32},  {1, DataType::kF16},    {30, DataType::kBf16},  {2, DataType::kQ4_0},
    {3, DataType::kQ4_1}, {6, DataType::kQ5_0},   {7, DataType::kQ5_1},   {8, DataType::kQ8_0},
    {10, DataType::kQ2K}, {11, DataType::kQ3K},   {12, DataType::kQ4K},   {13, DataType::kQ5K},
    {14, DataType::kQ6K}, {20, DataType::kIq4Nl}, {23, DataType::kIq4Xs}, {39, DataType::kMxfp4},
};
static_assert(std::size(kWeightNumbers) == kDataTypes.size());

// Types that are refused, so that a message can name them; those without a file format of their own
// any more too.
struct RefusedType {
  uint32_t number;
  const char* name;
};
constexpr RefusedType kRefused[] = {
    {4, "Q4_2"},    {5, "Q4_3"},        {9, "Q8_1"},        {15, "Q8_K"},       {16, "IQ2_XXS"},
    {17, "IQ2_XS"}, {18, "IQ3_XXS"},    {19, "IQ1_S"},      {21, "IQ3_S"},      {22, "IQ2_S"},
    {29, "IQ1_M"},  {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},
    {35, "TQ2_0"},  {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {40, "NVFP4"},
    {41, "Q1_0"},
};

std::string weight_type_names() {
  std::string names;
  for (const WeightNumber& weight : kWeightNumbers)
    names.append(names.empty() ? "" : ", ").append(to_string(weight.type));
  return names;
}

}  // namespace

std::optional<GgmlTypeLayout> ggml_type_layout(uint32_t type) {
  for (const WeightNumber& weight : kWeightNumbers)
    if (weight.number == type)
      return GgmlTypeLayout{type, to_string(weight.type),
                            static_cast<uint32_t>(block_elements(weight.type)),
                            static_cast<uint32_t>(block_bytes(weight.type))};
  for (const GgmlTypeLayout& layout : kOtherLayouts)
    if (layout.type == type) return layout;
  return std::nullopt;
}

std::string refuse_ggml_type(uint32_t type) {
  std::string names = weight_type_names();
  for (const GgmlTypeLayout& layout : kOtherLayouts) names.append(", ").append(layout.name);
  for (const RefusedType& refused : kRefused)
    if (refused.number == type)
      return fmt::format("type {} ({}) is not supported; supported are {}", refused.name, type,
                         names);
  return fmt::format("type {} is not known; supported are {}", type, names);
}

std::string ggml_type_name(uint32_t type) {
  const std::optional<GgmlTypeLayout> layout = ggml_type_layout(type);
  return layout.has_value() ? layout->name : fmt::format("type {}", type);
}

uint32_t ggml_type_number(DataType type) {
  for (const WeightNumber& weight : kWeightNumbers)
    if (weight.type == type) return weight.number;
  TROUPE_CHECK(false, "every weight type has a number");
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
  for (const WeightNumber& weight : kWeightNumbers)
    if (weight.number == type) return weight.type;
  return Error{ErrorCode::kInvalidFile,
               fmt::format("tensor '{}' is {} ({}); weights may be {}", printable(name),
                           ggml_type_name(type), type, weight_type_names())};
}

Result<WeightSource> GgufTensor::weight_source() const {
  TROUPE_TRY(const DataType data, data_type());
  if (rank > 2)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("tensor '{}' has {} dimensions, a matrix has 1 or 2", name, rank)};
  return WeightSource{data, static_cast<size_t>(rows()), static_cast<size_t>(columns()), bytes};
}

}  // namespace troupe

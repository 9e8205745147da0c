// What the GGUF reader gives back of files that are well formed. Expected values are what the
// writer was given.
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "kernels/backend.h"
#include "tests/support/gguf_writer.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

template <class T>
void put(Bytes& out, T value) {
  const size_t end = out.size();
  out.resize(end + sizeof(T));
  std::memcpy(out.data() + end, &value, sizeof(T));
}

template <class T>
void add_scalar(GgufWriter& writer, std::string_view key, GgufType type, T value) {
  Bytes bytes;
  put(bytes, value);
  writer.add_raw(key, type, bytes);
}

GgufFile parsed(const Bytes& bytes) {
  Result<GgufFile> file = GgufFile::parse(bytes);
  require_ok(file);
  return std::move(file).value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gguf)

BOOST_AUTO_TEST_CASE(reads_every_scalar_type) {
  GgufWriter writer;
  add_scalar<uint8_t>(writer, "u8", GgufType::kU8, 200);
  add_scalar<int8_t>(writer, "i8", GgufType::kI8, -100);
  add_scalar<uint16_t>(writer, "u16", GgufType::kU16, 60'000);
  add_scalar<int16_t>(writer, "i16", GgufType::kI16, -30'000);
  add_scalar<uint32_t>(writer, "u32", GgufType::kU32, 4'000'000'000U);
  add_scalar<int32_t>(writer, "i32", GgufType::kI32, -2'000'000'000);
  add_scalar<uint64_t>(writer, "u64", GgufType::kU64, UINT64_MAX);
  add_scalar<int64_t>(writer, "i64", GgufType::kI64, INT64_MIN);
  add_scalar<float>(writer, "f32", GgufType::kF32, 0.1F);
  add_scalar<double>(writer, "f64", GgufType::kF64, 0.1);
  writer.add_bool("bool", true);
  writer.add_text("text", "été");
  const Bytes bytes = writer.bytes();
  const GgufFile file = parsed(bytes);
  BOOST_TEST(file.version() == 3U);
  BOOST_TEST(file.entries().size() == 12U);
  BOOST_TEST(file.unsigned_integer("u8").value() == 200U);
  BOOST_TEST(file.number("i8").value() == -100.0);
  BOOST_TEST(file.unsigned_integer("u16").value() == 60'000U);
  BOOST_TEST(file.value("i16")->signed_integer().value() == -30'000);
  BOOST_TEST(file.unsigned_integer("u32").value() == 4'000'000'000U);
  BOOST_TEST(file.value("i32")->signed_integer().value() == -2'000'000'000);
  BOOST_TEST(file.unsigned_integer("u64").value() == UINT64_MAX);
  BOOST_TEST(file.value("i64")->signed_integer().value() == INT64_MIN);
  BOOST_TEST(file.number("f32").value() == double{0.1F});
  BOOST_TEST(file.number("f64").value() == 0.1);
  BOOST_TEST(file.boolean("bool").value());
  BOOST_TEST(file.text("text").value() == "été");
}

BOOST_AUTO_TEST_CASE(a_getter_of_another_type_says_both_types) {
  GgufWriter writer;
  writer.add_text("word", "x");
  writer.add_f32("fraction", 0.5F);
  add_scalar<int32_t>(writer, "negative", GgufType::kI32, -1);
  add_scalar<uint64_t>(writer, "huge", GgufType::kU64, UINT64_MAX);
  writer.add_texts("words", std::vector<std::string>{"a", "b"});
  const Bytes bytes = writer.bytes();
  const GgufFile file = parsed(bytes);
  check_refused(file.unsigned_integer("word").error(), "'word': type text, needed an integer");
  check_refused(file.unsigned_integer("fraction").error(), "type f32, needed an integer");
  check_refused(file.unsigned_integer("negative").error(), "value -1, needed 0 or more");
  check_refused(file.value("huge")->signed_integer().error(), "limit 2^63 - 1");
  check_refused(file.number("words").error(), "type array, needed a number");
  check_refused(file.boolean("fraction").error(), "needed bool");
  check_refused(file.text("fraction").error(), "needed text");
  check_refused(file.texts("word").error(), "needed an array");
  check_refused(file.integers("words").error(), "array of text");
  check_refused(file.numbers("words").error(), "array of text");
  const Error missing = file.text("absent").error();
  BOOST_TEST((missing.code == ErrorCode::kNotFound));
  BOOST_TEST(missing.message == "metadata 'absent' is missing");
}

BOOST_AUTO_TEST_CASE(reads_arrays_and_arrays_of_arrays) {
  GgufWriter writer;
  writer.add_texts("texts", std::vector<std::string>{"", "one", "two"});
  writer.add_i32s("integers", std::vector<int32_t>{-1, 0, 7});
  Bytes nested;  // [[1, 2], []] of u8
  put(nested, uint32_t{9});
  put(nested, uint64_t{2});
  put(nested, uint32_t{0});
  put(nested, uint64_t{2});
  put(nested, uint8_t{1});
  put(nested, uint8_t{2});
  put(nested, uint32_t{0});
  put(nested, uint64_t{0});
  writer.add_raw("nested", GgufType::kArray, nested);
  const Bytes bytes = writer.bytes();
  const GgufFile file = parsed(bytes);
  const auto texts = file.texts("texts").value();
  BOOST_TEST(texts.size() == 3U);
  BOOST_TEST(texts[0] == "");
  BOOST_TEST(texts[2] == "two");
  BOOST_TEST(file.integers("integers").value() == (std::vector<int64_t>{-1, 0, 7}));
  BOOST_TEST(file.numbers("integers").value() == (std::vector<double>{-1, 0, 7}));
  const GgufArray& outer = file.value("nested")->array;
  BOOST_REQUIRE(outer.arrays.size() == 2U);
  BOOST_TEST(element_of(outer.arrays[0], 1).unsigned_integer().value() == 2U);
  BOOST_TEST(outer.arrays[1].count == 0U);
}

BOOST_AUTO_TEST_CASE(finds_tensors_with_their_bytes) {
  GgufWriter writer;
  const std::vector<float> vector{1, 2, 3}, matrix{1, 2, 3, 4, 5, 6, 7, 8};
  writer.add_floats("vector", 0, 3, DataType::kF32, vector);
  writer.add_floats("matrix", 2, 4, DataType::kF16, matrix);
  const Bytes bytes = writer.bytes();
  const GgufFile file = parsed(bytes);
  BOOST_TEST(file.tensors().size() == 2U);
  const GgufTensor* tensor = file.find("matrix");
  BOOST_REQUIRE(tensor != nullptr);
  BOOST_TEST(tensor->rank == 2U);
  BOOST_TEST(tensor->rows() == 2U);
  BOOST_TEST(tensor->columns() == 4U);
  const WeightSource source = tensor->weight_source().value();
  BOOST_TEST((source.type == DataType::kF16));
  BOOST_REQUIRE(source.bytes.size() == 16U);
  uint16_t last = 0;
  std::memcpy(&last, source.bytes.data() + 14, 2);
  BOOST_TEST(float_of(last) == 8.0F);
  BOOST_TEST(file.find("vector")->rows() == 1U);
  BOOST_TEST((file.find("absent") == nullptr));
}

BOOST_AUTO_TEST_CASE(a_type_the_kernels_lack_is_read_and_refused_by_name) {
  GgufWriter writer;
  const std::vector<uint64_t> shape{3}, cube{32, 2, 2};
  writer.add_tensor("k", shape, 26, Bytes(12));
  writer.add_tensor("cube", cube, 8, Bytes(4 * 34));
  const Bytes bytes = writer.bytes();
  const GgufFile file = parsed(bytes);
  check_refused(file.find("k")->data_type().error(),
                "tensor 'k' is I32 (26); weights may be F32, F16");
  check_refused(file.find("cube")->weight_source().error(), "has 3 dimensions");
}

// ggml's numbers and sizes (ggml.h, ggml-common.h), written down a second time.
BOOST_AUTO_TEST_CASE(every_supported_type_is_read_with_its_size) {
  struct Known {
    uint32_t number;
    const char* name;
    uint64_t elements;
    size_t bytes;
  };
  constexpr Known kKnown[] = {
      {0, "F32", 1, 4},       {1, "F16", 1, 2},         {30, "BF16", 1, 2},
      {28, "F64", 1, 8},      {24, "I8", 1, 1},         {25, "I16", 1, 2},
      {26, "I32", 1, 4},      {27, "I64", 1, 8},        {2, "Q4_0", 32, 18},
      {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
      {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
      {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
      {20, "IQ4_NL", 32, 18}, {23, "IQ4_XS", 256, 136}, {39, "MXFP4", 32, 17}};
  for (const Known& known : kKnown) {
    GgufWriter writer;
    const std::vector<uint64_t> shape{2 * known.elements, 3};
    writer.add_tensor("t", shape, known.number, Bytes(6 * known.bytes));
    const Bytes bytes = writer.bytes();
    const GgufFile file = parsed(bytes);
    BOOST_TEST(file.find("t")->bytes.size() == 6 * known.bytes, known.name);
    BOOST_TEST(ggml_type_name(known.number) == known.name);
    const auto type = file.find("t")->data_type();
    const bool carried = known.number >= 24 && known.number <= 28;
    BOOST_TEST(type.ok() == !carried);
    if (type.ok()) BOOST_TEST(ggml_type_number(type.value()) == known.number);
  }
}

BOOST_AUTO_TEST_CASE(every_other_type_is_refused_by_name_and_number) {
  size_t read = 0;
  for (uint32_t number = 0; number < 64; ++number) {
    GgufWriter writer;
    const std::vector<uint64_t> shape{256};
    writer.add_tensor("t", shape, number, Bytes(2048));
    const Bytes bytes = writer.bytes();
    const Result<GgufFile> file = GgufFile::parse(bytes);
    read += file.ok() ? 1 : 0;
    if (!file.ok()) check_refused(file.error(), number > 41 ? "is not known" : "is not supported");
    if (number == 16) check_refused(file.error(), "type IQ2_XXS (16) is not supported; supported");
  }
  BOOST_TEST(read == 21U);
}

// What plain rounding to so many bits costs: half a step of each sub-block's reach at most, so a
// root mean square of a step's twelfth root. Bounds are of values evenly spread over [-1, 1).
BOOST_AUTO_TEST_CASE(the_writers_quantisers_come_close) {
  const std::map<DataType, double> worst = {
      {DataType::kF32, 0},      {DataType::kF16, 4e-4},   {DataType::kBf16, 3e-3},
      {DataType::kQ8_0, 0.006}, {DataType::kQ4_0, 0.08},  {DataType::kQ4_1, 0.07},
      {DataType::kQ5_0, 0.04},  {DataType::kQ5_1, 0.035}, {DataType::kQ2K, 0.4},
      {DataType::kQ3K, 0.25},   {DataType::kQ4K, 0.08},   {DataType::kQ5K, 0.04},
      {DataType::kQ6K, 0.02},   {DataType::kIq4Nl, 0.12}, {DataType::kIq4Xs, 0.13},
      {DataType::kMxfp4, 0.25}};
  std::mt19937_64 random(11);
  std::vector<float> values(4096);
  for (float& value : values) value = static_cast<float>(random() >> 40) * 0x1p-23F - 1.0F;
  const auto operators = make_operators({.kernels = KernelChoice::kReference}).value();
  for (const DataType type : kDataTypes) {
    const Bytes bytes = quantise(type, values);
    const auto weights =
        operators->pack({.type = type, .rows = 1, .columns = values.size(), .bytes = {bytes}});
    require_ok(weights);
    std::vector<float> back(values.size());
    const uint32_t row = 0;
    operators->embed({back.data(), 1, back.size()}, {&row, 1}, *weights.value());
    double squares = 0, errors = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += std::pow(double{values[i]}, 2);
      errors += std::pow(double{values[i]} - double{back[i]}, 2);
    }
    const double off = std::sqrt(errors / squares);
    BOOST_TEST(off <= worst.at(type), to_string(type) << " is off by " << off);
  }
}

BOOST_AUTO_TEST_CASE(accepts_version_2_and_a_stated_alignment) {
  GgufWriter writer;
  writer.add_u32("general.alignment", 8);
  writer.add_floats("a", 0, 2, DataType::kF32, std::vector<float>{1, 2});
  writer.add_floats("b", 0, 2, DataType::kF32, std::vector<float>{3, 4});
  Bytes bytes = writer.bytes();
  overwrite<uint32_t>(bytes, 4, 2);
  const GgufFile file = parsed(bytes);  // the writer aligns to 32, which is a multiple of 8
  BOOST_TEST(file.version() == 2U);
  BOOST_TEST(file.alignment() == 8U);
}

BOOST_AUTO_TEST_CASE(the_content_id_depends_on_every_byte_and_nothing_else) {
  Bytes bytes = small_model();
  const std::string id = parsed(bytes).content_id();
  BOOST_TEST(id.size() == 32U);
  BOOST_TEST(parsed(Bytes(bytes)).content_id() == id);
  bytes.back() ^= std::byte{1};
  BOOST_TEST(parsed(bytes).content_id() != id);
}

BOOST_AUTO_TEST_CASE(opens_a_file_and_names_it_in_errors) {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string path = (folder / ("gguf_test_" + std::to_string(getpid()))).string();
  BOOST_REQUIRE(write_tiny_model(small_options(), path).ok());
  {
    const Result<GgufFile> file = GgufFile::open(path);
    BOOST_REQUIRE(file.ok());
    BOOST_TEST((file.value().mapping() != nullptr));
    const GgufFile copy = file.value();  // shares the mapping
    BOOST_TEST((copy.find("token_embd.weight") == file.value().find("token_embd.weight")));
  }
  std::filesystem::resize_file(path, 100);
  const Result<GgufFile> cut = GgufFile::open(path);
  BOOST_REQUIRE(!cut.ok());
  BOOST_TEST(cut.error().message.starts_with(path + ": "));
  std::filesystem::remove(path);
  BOOST_TEST((GgufFile::open(path).error().code == ErrorCode::kNotFound));
}

BOOST_AUTO_TEST_CASE(tiny_models_are_the_same_bytes_for_the_same_options) {
  BOOST_TEST((small_model() == small_model()));
  TinyModelOptions other = small_options();
  other.seed = 2;
  BOOST_TEST((make_tiny_model(other).value().bytes() != small_model()));
  other.heads = 3;
  BOOST_TEST((make_tiny_model(other).error().code == ErrorCode::kInvalidArgument));
}

// The writer's own arithmetic: every half survives the way through float.
BOOST_AUTO_TEST_CASE(halves_survive_the_way_through_float) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = float_of(static_cast<uint16_t>(half));
    if (std::isnan(value)) continue;
    BOOST_REQUIRE_EQUAL(half_of(value), half);
  }
  BOOST_TEST(half_of(65520.0F) == 0x7C00);         // rounds up to infinity
  BOOST_TEST(half_of(65519.0F) == 0x7BFF);         // rounds down to the largest half
  BOOST_TEST(half_of(0x1p-25F) == 0);              // half of the smallest: the even one is zero
  BOOST_TEST(half_of(0x1.8p-25F) == 1);            // above it
  BOOST_TEST(half_of(1.0F + 0x1p-11F) == 0x3C00);  // a tie goes to the even mantissa
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

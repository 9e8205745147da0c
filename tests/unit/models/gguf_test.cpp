// What the GGUF reader gives back of files that are well formed. Expected values are what the
// writer was given.
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>

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
  const std::vector<uint64_t> shape{256}, cube{32, 2, 2};
  writer.add_tensor("k", shape, 12, Bytes(144));
  writer.add_tensor("cube", cube, 8, Bytes(4 * 34));
  const Bytes bytes = writer.bytes();
  const GgufFile file = parsed(bytes);
  check_refused(file.find("k")->data_type().error(), "tensor 'k' is Q4_K; supported are F32, F16");
  check_refused(file.find("cube")->weight_source().error(), "has 3 dimensions");
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

// Files that are broken in one place each, made from a good one. Every one is a one-line error,
// never a crash, and never costs memory that the file does not have.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>

#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

// One key of each kind and two tensors, the first a matrix.
Bytes good_file() {
  GgufWriter writer;
  writer.add_u32("number", 7);
  writer.add_bool("flag", true);
  writer.add_text("word", "hello");
  writer.add_i32s("list", std::vector<int32_t>{1, 2, 3});
  writer.add_texts("words", std::vector<std::string>{"a", "b"});
  writer.add_u32("general.alignment", 32);
  writer.add_floats("first", 2, 32, DataType::kQ8_0, std::vector<float>(64, 1.0F));
  writer.add_floats("other", 2, 8, DataType::kF32, std::vector<float>(16, 1.0F));
  return writer.bytes();
}

struct BadFile {
  const char* name;
  std::function<void(Bytes&)> change;
  const char* says;
};

constexpr size_t kTensorCountAt = 8, kKeyCountAt = 16;

const std::vector<BadFile>& bad_headers() {
  static const std::vector<BadFile> files = {
      {"empty", [](Bytes& b) { b.clear(); }, "ends at byte 0"},
      {"other magic", [](Bytes& b) { b[0] = std::byte{'X'}; }, "a GGUF file with"},
      {"version 1", [](Bytes& b) { overwrite<uint32_t>(b, 4, 1); }, "version 1, supported"},
      {"version 4", [](Bytes& b) { overwrite<uint32_t>(b, 4, 4); }, "version 4, supported"},
      {"big-endian", [](Bytes& b) { overwrite<uint32_t>(b, 4, 0x03000000); },
       "a big-endian GGUF file"},
      {"big-endian version 2", [](Bytes& b) { overwrite<uint32_t>(b, 4, 0x02000000); },
       "a big-endian GGUF file"},
      {"version 99", [](Bytes& b) { overwrite<uint32_t>(b, 4, 99); }, "version 99, supported"},
      {"tensor count 2^63", [](Bytes& b) { overwrite<uint64_t>(b, kTensorCountAt, 1ULL << 63); },
       "limit 65536"},
      {"tensor count over the limit",
       [](Bytes& b) { overwrite<uint64_t>(b, kTensorCountAt, UINT64_MAX); }, "limit 65536"},
      {"tensor count over the file",
       [](Bytes& b) { overwrite<uint64_t>(b, kTensorCountAt, 60'000); }, "needs more than the"},
      {"one tensor too many", [](Bytes& b) { overwrite<uint64_t>(b, kTensorCountAt, 3); },
       "tensor 2"},
      {"key count over the limit",
       [](Bytes& b) { overwrite<uint64_t>(b, kKeyCountAt, 1ULL << 63); }, "limit 65536"},
      {"key count over the file", [](Bytes& b) { overwrite<uint64_t>(b, kKeyCountAt, 60'000); },
       "needs more than the"},
      {"one key too many", [](Bytes& b) { overwrite<uint64_t>(b, kKeyCountAt, 7); },
       "tensor 0: name"},
      {"one key too few", [](Bytes& b) { overwrite<uint64_t>(b, kKeyCountAt, 5); },
       "tensor 1: name"},
  };
  return files;
}

const std::vector<BadFile>& bad_metadata() {
  const auto at = [](const Bytes& b, const char* key) { return after(b, key); };
  static const std::vector<BadFile> files = {
      {"key length 2^64 - 1",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "number") - 14, UINT64_MAX); }, "limit 65535"},
      {"key length past the end",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "number") - 14, 65'000); }, "ends at byte"},
      {"empty key", [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "number") - 14, 0); },
       "name is empty"},
      {"unprintable key", [at](Bytes& b) { b[at(b, "number") - 1] = std::byte{'\n'}; },
       "printable ASCII"},
      {"key twice",
       [at](Bytes& b) {
         overwrite<std::array<char, 4>>(b, at(b, "word") - 4, {'f', 'l', 'a', 'g'});
       },
       "'flag' appears twice"},
      {"value type 13", [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "number"), 13); },
       "'number': value type 13"},
      {"bool of 2", [at](Bytes& b) { overwrite<uint8_t>(b, at(b, "flag") + 4, 2); },
       "bool of value 2"},
      {"text past the end",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "word") + 4, UINT64_MAX - 7); }, "limit"},
      {"text length 2^63",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "word") + 4, 1ULL << 63); }, "limit"},
      {"text one byte past the end",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "word") + 4, b.size() - at(b, "word") - 11); },
       "ends at byte"},
      {"array count 2^63",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "list") + 8, 1ULL << 63); }, "array of"},
      {"array count 2^64 - 1",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "list") + 8, UINT64_MAX); },
       "array of 18446744073709551615 i32"},
      {"array size overflows to nothing",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "list") + 8, 1ULL << 62); }, "array of"},
      {"array of texts past the end",
       [at](Bytes& b) { overwrite<uint64_t>(b, at(b, "words") + 8, 1ULL << 40); }, "texts"},
      {"array of type 13", [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "list") + 4, 13); },
       "value type 13"},
      {"array of too many arrays",
       [at](Bytes& b) {
         overwrite<uint32_t>(b, at(b, "list") + 4, 9);
         overwrite<uint64_t>(b, at(b, "list") + 8, 1ULL << 50);
       },
       "arrays inside arrays"},
      {"alignment 0", [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "general.alignment") + 4, 0); },
       "general.alignment 0"},
      {"alignment 3", [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "general.alignment") + 4, 3); },
       "general.alignment 3, allowed are powers of two"},
      {"alignment 24",
       [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "general.alignment") + 4, 24); },
       "powers of two"},
      {"alignment 2^31",
       [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "general.alignment") + 4, 1U << 31); },
       "to 1048576"},
      {"alignment is a float",
       [at](Bytes& b) { overwrite<uint32_t>(b, at(b, "general.alignment"), 6); },
       "needed an integer"},
  };
  return files;
}

const std::vector<BadFile>& bad_tensors() {
  const auto first = [](const Bytes& b, size_t field) { return after(b, "first") + field; };
  const auto other = [](const Bytes& b, size_t field) { return after(b, "other") + field; };
  static const std::vector<BadFile> files = {
      {"name of 256 bytes", [first](Bytes& b) { overwrite<uint64_t>(b, first(b, 0) - 13, 256); },
       "limit 255"},
      {"name with a line break", [first](Bytes& b) { b[first(b, 0) - 1] = std::byte{'\n'}; },
       "printable ASCII"},
      {"name twice",
       [other](Bytes& b) {
         overwrite<std::array<char, 5>>(b, other(b, 0) - 5, {'f', 'i', 'r', 's', 't'});
       },
       "'first' appears twice"},
      {"no dimensions", [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kRankAt), 0); },
       "0 dimensions"},
      {"5 dimensions", [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kRankAt), 5); },
       "5 dimensions, allowed are 1 to 4"},
      {"a dimension of 0", [first](Bytes& b) { overwrite<uint64_t>(b, first(b, kRowsAt), 0); },
       "dimension 1 is 0"},
      {"31 columns of blocks of 32",
       [first](Bytes& b) { overwrite<uint64_t>(b, first(b, kColumnsAt), 31); },
       "31 columns, type Q8_0 needs a multiple of 32"},
      {"rows beyond the file",
       [first](Bytes& b) { overwrite<uint64_t>(b, first(b, kRowsAt), 1'000); },
       "bytes of tensor data"},
      {"size overflows",
       [first](Bytes& b) {
         overwrite<uint64_t>(b, first(b, kColumnsAt), 1ULL << 40);
         overwrite<uint64_t>(b, first(b, kRowsAt), 1ULL << 40);
       },
       "overflows 64 bits"},
      {"size overflows to 0",
       [other](Bytes& b) {
         overwrite<uint64_t>(b, other(b, kColumnsAt), 1ULL << 31);
         overwrite<uint64_t>(b, other(b, kRowsAt), 1ULL << 31);
       },
       "overflows 64 bits"},
      {"dimension 2^63",
       [first](Bytes& b) { overwrite<uint64_t>(b, first(b, kRowsAt), 1ULL << 63); },
       "overflows 64 bits"},
      {"type 2^32 - 1",
       [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kTypeAt), UINT32_MAX); },
       "type 4294967295 is not known"},
      {"a type that is known and not supported",
       [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kTypeAt), 16); },
       "type IQ2_XXS (16) is not supported; supported are F32"},
      {"32 columns of blocks of 256",
       [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kTypeAt), 12); },
       "32 columns, type Q4_K needs a multiple of 256"},
      {"unknown type", [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kTypeAt), 99); },
       "type 99 is not known"},
      {"removed type", [first](Bytes& b) { overwrite<uint32_t>(b, first(b, kTypeAt), 4); },
       "type Q4_2 (4) is not supported"},
      {"misaligned", [other](Bytes& b) { overwrite<uint64_t>(b, other(b, kOffsetAt), 97); },
       "not a multiple of the alignment 32"},
      {"offset beyond the file",
       [other](Bytes& b) { overwrite<uint64_t>(b, other(b, kOffsetAt), 1 << 20); },
       "at offset 1048576"},
      {"offset + size overflows",
       [other](Bytes& b) { overwrite<uint64_t>(b, other(b, kOffsetAt), UINT64_MAX - 31); },
       "at offset 18446744073709551584"},
      {"overlapping", [other](Bytes& b) { overwrite<uint64_t>(b, other(b, kOffsetAt), 32); },
       "'first' and 'other' overlap"},
  };
  return files;
}

void check_all(const std::vector<BadFile>& files) {
  for (const BadFile& bad : files) {
    BOOST_TEST_CONTEXT(bad.name) {
      Bytes bytes = good_file();
      bad.change(bytes);
      // An exact copy on the heap, so that a sanitizer sees a read past the end.
      const Bytes exact(bytes.begin(), bytes.end());
      const Result<GgufFile> file = GgufFile::parse(exact);
      BOOST_TEST(!file.ok());
      if (!file.ok()) check_refused(file.error(), bad.says);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gguf_bad_files)

// Without this the tests below would prove nothing.
BOOST_AUTO_TEST_CASE(the_good_file_is_good) {
  BOOST_TEST(GgufFile::parse(good_file()).ok());
  const Bytes model = small_model();
  BOOST_TEST(GgufFile::parse(model).ok());
}

BOOST_AUTO_TEST_CASE(a_bad_header_is_an_error) {
  check_all(bad_headers());
}
BOOST_AUTO_TEST_CASE(bad_metadata_is_an_error) {
  check_all(bad_metadata());
}
BOOST_AUTO_TEST_CASE(a_bad_tensor_is_an_error) {
  check_all(bad_tensors());
}

BOOST_AUTO_TEST_CASE(a_file_cut_anywhere_is_an_error) {
  const Bytes good = good_file();
  for (size_t size = 0; size < good.size(); ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<GgufFile> file = GgufFile::parse(cut);
    BOOST_REQUIRE_MESSAGE(!file.ok(), "cut at " << size);
    check_refused(file.error(), "");
  }
}

// An alignment can be 64 bits wide; 2^40 is one that no 32-bit field holds.
BOOST_AUTO_TEST_CASE(a_huge_alignment_is_an_error) {
  GgufWriter writer;
  writer.add_u64("general.alignment", 1ULL << 40);
  check_refused(GgufFile::parse(writer.bytes()).error(), "general.alignment 1099511627776");
}

BOOST_AUTO_TEST_CASE(arrays_nested_too_deep_are_an_error) {
  Bytes deep;
  for (int level = 0; level < 1000; ++level) {
    Bytes header(12);
    overwrite<uint32_t>(header, 0, 9);
    overwrite<uint64_t>(header, 4, 1);
    deep.insert(deep.end(), header.begin(), header.end());
  }
  GgufWriter writer;
  writer.add_raw("deep", GgufType::kArray, deep);
  check_refused(GgufFile::parse(writer.bytes()).error(), "nested deeper than 4");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

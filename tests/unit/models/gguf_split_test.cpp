// Models in several files: together they are the model they were cut from, and whatever is missing,
// doubled or mixed up is named.
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/pipeline.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;

void add_split_keys(GgufWriter& writer, uint16_t number, uint16_t count, int32_t tensors) {
  const auto raw = [&](std::string_view key, GgufType type, const auto& value) {
    writer.add_raw(key, type, std::as_bytes(std::span(&value, 1)));
  };
  raw("split.no", GgufType::kU16, number);
  raw("split.count", GgufType::kU16, count);
  raw("split.tensors.count", GgufType::kI32, tensors);
}

// The small model in `count` parts, its tensors dealt out one after another.
std::vector<Bytes> cut(uint16_t count) {
  const Bytes whole = small_model();
  const GgufFile file = GgufFile::parse(whole).value();
  std::vector<GgufWriter> writers(count);
  add_tiny_config(writers[0], small_options());
  add_tiny_vocabulary(writers[0], small_options());
  for (uint16_t i = 0; i < count; ++i)
    add_split_keys(writers[i], i, count, static_cast<int32_t>(file.tensors().size()));
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    const std::span<const uint64_t> shape(tensor.shape.data(), tensor.rank);
    writers[i % count].add_tensor(tensor.name, shape, tensor.type,
                                  {tensor.bytes.begin(), tensor.bytes.end()});
  }
  std::vector<Bytes> parts;
  for (const GgufWriter& writer : writers) parts.push_back(writer.bytes());
  return parts;
}

Result<GgufFile> together(const std::vector<Bytes>& parts) {
  const std::vector<ByteSpan> spans(parts.begin(), parts.end());
  return GgufFile::parse_parts(spans);
}

std::vector<Generation> generated(const GgufFile& file) {
  PipelineOptions options;
  options.stages = 2;
  auto pipeline = Pipeline::make(file, options);
  require_ok(pipeline);
  const std::vector<Prompt> prompts = {{{10, 20, 30}, {}}};
  auto made = generate(pipeline.value(), prompts, {.tokens = 20});
  require_ok(made);
  return std::move(made).value();
}

// A folder that goes with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("gguf_split_test_" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const Bytes& bytes) const {
    const std::string full = (path / name).string();
    std::ofstream(full, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return full;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(gguf_split)

BOOST_AUTO_TEST_CASE(the_first_part_opens_the_model_it_was_cut_from) {
  const Folder folder;
  const std::vector<Bytes> parts = cut(3);
  const std::string path = folder.write("m-00001-of-00003.gguf", parts[0]);
  folder.write("m-00002-of-00003.gguf", parts[1]);
  folder.write("m-00003-of-00003.gguf", parts[2]);
  const Result<GgufFile> opened = GgufFile::open(path);
  require_ok(opened);
  const GgufFile& file = opened.value();
  const Bytes bytes = small_model();
  const GgufFile whole = GgufFile::parse(bytes).value();
  BOOST_TEST(file.parts() == 3U);
  BOOST_TEST(file.total_bytes() == parts[0].size() + parts[1].size() + parts[2].size());
  BOOST_TEST(file.tensors().size() == whole.tensors().size());
  for (const GgufTensor& tensor : whole.tensors()) {
    const GgufTensor* found = file.find(tensor.name);
    BOOST_REQUIRE(found != nullptr);
    BOOST_TEST(std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(),
                          tensor.bytes.end()));
    file.dont_need(*found);  // of whatever part: advice, nothing is lost
    BOOST_TEST((found->bytes.front() == tensor.bytes.front()));
  }
  const std::vector<Generation> split = generated(file), unsplit = generated(whole);
  BOOST_TEST((split[0].tokens == unsplit[0].tokens));
}

BOOST_AUTO_TEST_CASE(the_content_id_depends_on_every_part) {
  std::vector<Bytes> parts = cut(2);
  const std::string id = together(parts).value().content_id();
  BOOST_TEST(id.size() == 32U);
  BOOST_TEST(together(parts).value().content_id() == id);
  parts[1].back() ^= std::byte{1};
  BOOST_TEST(together(parts).value().content_id() != id);
}

BOOST_AUTO_TEST_CASE(one_part_that_says_so_is_a_whole_model) {
  const std::vector<Bytes> parts = cut(1);
  BOOST_TEST(together(parts).ok());
  BOOST_TEST(GgufFile::parse(parts[0]).value().parts() == 1U);
}

BOOST_AUTO_TEST_CASE(a_part_that_is_missing_or_misnamed_is_named) {
  const Folder folder;
  const std::vector<Bytes> parts = cut(3);
  const std::string path = folder.write("m-00001-of-00003.gguf", parts[0]);
  const std::string second = folder.write("m-00002-of-00003.gguf", parts[1]);
  const Error missing = GgufFile::open(path).error();
  BOOST_TEST((missing.code == ErrorCode::kNotFound));
  BOOST_TEST(missing.message.find("part 3 of 3") != std::string::npos, missing.message);
  BOOST_TEST(missing.message.find("m-00003-of-00003.gguf") != std::string::npos, missing.message);
  check_refused(GgufFile::open(second).error(),
                "part 2 of a model in 3 parts, open the first (*-00001-of-00003.gguf)");
  const std::string other = folder.write("model.gguf", parts[0]);
  check_refused(GgufFile::open(other).error(), "name must end in -00001-of-00003.gguf");
  folder.write("m-00003-of-00003.gguf", parts[1]);
  check_refused(GgufFile::open(path).error(),
                "part 2 of 3 (21 tensors) is where part 3 of 3 (21 tensors) should be");
  folder.write("m-00003-of-00003.gguf", Bytes(parts[2].begin(), parts[2].begin() + 30));
  check_refused(GgufFile::open(path).error(), "part 3 of 3");
}

BOOST_AUTO_TEST_CASE(parts_that_do_not_belong_together_are_refused) {
  const std::vector<Bytes> three = cut(3), two = cut(2);
  check_refused(GgufFile::parse(three[0]).error(), "part 1 of a model in 3 parts, 1 given");
  check_refused(together({three[0], three[1]}).error(), "in 3 parts, 2 given");
  check_refused(together({three[0], three[2], three[1]}).error(), "is where part 2 of 3");
  check_refused(together({three[0], three[1], two[1]}).error(),
                "part 2 of 2 (21 tensors) is where");
  const Bytes whole = small_model();
  check_refused(together({whole, whole}).error(), "2 parts of a model that is not split");
  check_refused(together({two[0], whole}).error(), "part 1 of 1");
  check_refused(together({}).error(), "no parts");
}

BOOST_AUTO_TEST_CASE(tensors_that_are_doubled_or_lost_are_refused) {
  const auto part = [](uint16_t number, const char* name, int32_t tensors) {
    GgufWriter writer;
    add_split_keys(writer, number, 2, tensors);
    writer.add_floats(name, 0, 2, DataType::kF32, std::vector<float>{1, 2});
    return writer.bytes();
  };
  require_ok(together({part(0, "a", 2), part(1, "b", 2)}));
  check_refused(together({part(0, "a", 2), part(1, "a", 2)}).error(),
                "tensor 'a' is in part 1 and in part 2");
  check_refused(together({part(0, "a", 3), part(1, "b", 3)}).error(),
                "2 parts hold 2 tensors, split.tensors.count is 3");
  check_refused(together({part(0, "a", -1), part(1, "b", -1)}).error(),
                "value -1, needed 0 or more");
}

BOOST_AUTO_TEST_CASE(split_keys_out_of_range_are_refused) {
  const auto first = [](uint16_t number, uint16_t count) {
    GgufWriter writer;
    add_split_keys(writer, number, count, 0);
    return GgufFile::parse(writer.bytes()).error();
  };
  check_refused(first(0, 1001), "split.count 1001, limit 1000");
  check_refused(first(3, 3), "split.no 3 of split.count 3, allowed are 0 to 2");
  GgufWriter writer;
  writer.add_text("split.count", "3");
  check_refused(GgufFile::parse(writer.bytes()).error(), "type text, needed an integer");
  GgufWriter lone;
  lone.add_u32("split.count", 3);
  const Error missing = GgufFile::parse(lone.bytes()).error();
  BOOST_TEST(missing.message == "metadata 'split.no' is missing");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

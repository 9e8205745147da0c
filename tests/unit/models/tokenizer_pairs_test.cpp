// Vocabularies of real models with the test pairs that the llama.cpp project publishes for them:
// gpt-2, and StarCoder, whose pre-tokenizer is SmolLM's. Skipped where the files are not at hand.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/tokenizer.h"
#include "tests/support/skip.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

// TROUPE_SHARED, or the folder "shared" beside the source root.
std::filesystem::path tokenizer_folder() {
  const char* shared = std::getenv("TROUPE_SHARED");
  const char* source = std::getenv("TROUPE_SOURCE");
  const std::filesystem::path root =
      shared != nullptr ? shared
                        : std::filesystem::path(source != nullptr ? source : ".") / ".." / "shared";
  return root / "data" / "tokenizers";
}

struct SkipIfAbsent {
  SkipIfAbsent() {
    const auto folder = tokenizer_folder();
    if (!std::filesystem::exists(folder / "ggml-vocab-gpt-2.gguf"))
      skip_all("no vocabularies in " + folder.string() +
               " (set TROUPE_SHARED to the folder with data/tokenizers)");
  }
};

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(file.good(), path.string());
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<std::string> texts_of(const std::string& content) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  size_t start = 0;
  for (size_t end = content.find(separator); end != std::string::npos;
       end = content.find(separator, start)) {
    texts.push_back(content.substr(start, end - start));
    start = end + separator.size();
  }
  return texts;
}

void check_pairs(const std::string& name) {
  const std::string path = (tokenizer_folder() / ("ggml-vocab-" + name + ".gguf")).string();
  const Result<GgufFile> file = GgufFile::open(path);
  require_ok(file);
  const Result<Tokenizer> tokenizer = Tokenizer::from(file.value());
  require_ok(tokenizer);
  const std::vector<std::string> texts = texts_of(content_of(path + ".inp"));
  BOOST_REQUIRE(texts.size() >= 40U);
  std::istringstream expected(content_of(path + ".out"));
  for (const std::string& text : texts) {
    std::string line;
    BOOST_REQUIRE(std::getline(expected, line));
    std::istringstream numbers(line);
    std::vector<uint32_t> tokens;
    for (uint32_t token = 0; numbers >> token;) tokens.push_back(token);
    const auto encoded = tokenizer.value().encode(text);
    require_ok(encoded);
    BOOST_TEST(encoded.value() == tokens, boost::test_tools::per_element());
    Detokenizer detokenizer(tokenizer.value());
    std::string back;
    for (const uint32_t token : encoded.value()) back += detokenizer.feed(token);
    BOOST_TEST(back + detokenizer.flush() == text);
  }
}

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(SkipIfAbsent);

BOOST_AUTO_TEST_SUITE(tokenizer_pairs)

BOOST_AUTO_TEST_CASE(gpt_2_agrees_with_the_published_pairs) {
  check_pairs("gpt-2");
}
BOOST_AUTO_TEST_CASE(starcoder_agrees_with_the_published_pairs) {
  check_pairs("starcoder");
}

BOOST_AUTO_TEST_CASE(other_kinds_are_refused_by_name) {
  const auto refusal = [](const char* name) {
    const auto path = tokenizer_folder() / (std::string("ggml-vocab-") + name + ".gguf");
    const Result<GgufFile> file = GgufFile::open(path.string());
    require_ok(file);
    return Tokenizer::from(file.value()).error().message;
  };
  BOOST_TEST(refusal("llama-spm") == "tokenizer model 'llama', supported is gpt2 (byte-level BPE)");
  BOOST_TEST(refusal("bert-bge") == "tokenizer model 'bert', supported is gpt2 (byte-level BPE)");
  BOOST_TEST(refusal("deepseek-coder").find("pre-tokenizer 'deepseek-coder'") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

// Whatever text comes, encoding ends, gives tokens of the vocabulary, gives the text back, and
// makes no special token unless asked; whatever tokens come, detokenising gives valid UTF-8.
#include <string>

#include "models/tokenizer.h"
#include "models/tokenizers/unicode.h"
#include "tests/fuzz/mutation_driver.h"
#include "tests/support/tiny_model.h"

namespace {

using namespace troupe;
using fuzz::require;

const Tokenizer& tokenizer() {
  static const Tokenizer instance = [] {
    const std::vector<std::byte> bytes =
        test::make_tiny_model({.layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 32})
            .value()
            .bytes();
    return Tokenizer::from(GgufFile::parse(bytes).value()).value();
  }();
  return instance;
}

void encode_and_back(std::string_view text, bool parse_special) {
  const Result<std::vector<uint32_t>> tokens =
      tokenizer().encode(text, {.parse_special = parse_special});
  const bool valid = valid_utf8_prefix(text) == text.size();
  require(tokens.ok() == valid, "all UTF-8 can be encoded, and nothing else");
  if (!tokens.ok()) return;
  require(tokens.value().size() <= text.size(), "a token is at least a byte");
  Detokenizer detokenizer(tokenizer(), true);
  std::string back;
  for (const uint32_t token : tokens.value()) {
    require(token < tokenizer().vocabulary(), "a token is in the vocabulary");
    require(parse_special || !tokenizer().is_special(token), "text makes no special token");
    back += detokenizer.feed(token);
  }
  require(back + detokenizer.flush() == text, "the text comes back");
}

void detokenize(const uint8_t* data, size_t size) {
  Detokenizer detokenizer(tokenizer());
  for (size_t i = 0; i + 1 < size; i += 2) {
    const std::string part =
        detokenizer.feed((static_cast<uint32_t>(data[i]) << 1) + (data[i + 1] & 1U));
    require(valid_utf8_prefix(part) == part.size(), "detokenised text is UTF-8");
  }
  const std::string rest = detokenizer.flush();
  require(valid_utf8_prefix(rest) == rest.size(), "the rest is UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  encode_and_back(text, false);
  encode_and_back(text, true);
  detokenize(data, size);
  return 0;
}

#ifndef TROUPE_LIBFUZZER
int main(int argc, char** argv) {
  const auto input = [](std::string_view text) { return fuzz::Input(text.begin(), text.end()); };
  return fuzz::run(argc, argv,
                   {input("hello world, it's the end of 2024!\n\n  in the  \t<|im_start|>user\nx"),
                    input("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xF0\x9F\xA6\x99 \xC2\xA0\xC2\xBD "
                          "<|im_end|><|im_end|> \xD0\xB4\xD0\xB0"),
                    input(std::string(300, ' ')), input(std::string(300, 'l'))},
                   0);
}
#endif

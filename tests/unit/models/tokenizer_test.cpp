// The tokenizer on the tiny vocabulary, whose merges are few enough to follow by hand.
#include "models/tokenizer.h"

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "models/tokenizers/pretokenizer.h"
#include "models/tokenizers/unicode.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

Tokenizer tiny_tokenizer() {
  const Bytes bytes = small_model();
  Result<Tokenizer> tokenizer = Tokenizer::from(GgufFile::parse(bytes).value());
  require_ok(tokenizer);
  return std::move(tokenizer).value();  // independent of the bytes it was read from
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                   const EncodeOptions& options = {}) {
  const Result<std::vector<uint32_t>> tokens = tokenizer.encode(text, options);
  require_ok(tokens);
  std::vector<std::string> pieces;
  for (const uint32_t token : tokens.value()) pieces.emplace_back(tokenizer.piece(token));
  return pieces;
}

std::vector<std::string> split(PreTokenizer kind, std::string_view text) {
  std::vector<std::string_view> pieces;
  pre_tokenize(kind, text, pieces);
  return {pieces.begin(), pieces.end()};
}

using Texts = std::vector<std::string>;

// A file with a tokenizer and nothing else.
GgufWriter tokenizer_file(const Texts& tokens, const std::vector<int32_t>& kinds,
                          const Texts& merges) {
  GgufWriter writer;
  writer.add_text("tokenizer.ggml.model", "gpt2");
  writer.add_text("tokenizer.ggml.pre", "gpt-2");
  writer.add_texts("tokenizer.ggml.tokens", tokens);
  if (!kinds.empty()) writer.add_i32s("tokenizer.ggml.token_type", kinds);
  writer.add_texts("tokenizer.ggml.merges", merges);
  return writer;
}

Result<Tokenizer> read(const GgufWriter& writer) {
  const Bytes bytes = writer.bytes();
  const Result<GgufFile> file = GgufFile::parse(bytes);
  BOOST_REQUIRE(file.ok());
  return Tokenizer::from(file.value());
}

std::string random_text(std::mt19937_64& random, size_t points) {
  static const std::vector<std::string> words = {
      " the",       "hello", " world",           "\n", "  ", "1", "é", "日",
      "<|im_end|>", "'s",    "\xF0\x9F\xA6\x99", "\t!"};
  std::string text;
  for (size_t i = 0; i < points; ++i) {
    if (random() % 2 == 0) {
      text += words[random() % words.size()];
      continue;
    }
    auto point = static_cast<uint32_t>(random() % 0x10F800);
    if (point >= 0xD800) point += 0x800;
    append_utf8(text, point);
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer)

// By the expressions in pretokenizer.h, followed by hand.
BOOST_AUTO_TEST_CASE(gpt2_cuts_words_numbers_marks_and_spaces) {
  const auto cut = [](std::string_view text) { return split(PreTokenizer::kGpt2, text); };
  BOOST_TEST(cut("") == Texts{});
  BOOST_TEST(cut("Hello world") == (Texts{"Hello", " world"}));
  BOOST_TEST(cut("it's we'll I'D") == (Texts{"it", "'s", " we", "'ll", " I", "'", "D"}));
  BOOST_TEST(cut("x123 456") == (Texts{"x", "123", " 456"}));
  BOOST_TEST(cut("a  b") == (Texts{"a", " ", " b"}));
  BOOST_TEST(cut("a \n\n b ") == (Texts{"a", " \n\n", " b", " "}));
  BOOST_TEST(cut("\n\nx") == (Texts{"\n", "\n", "x"}));
  BOOST_TEST(cut("a\t\tb") == (Texts{"a", "\t", "\t", "b"}));
  BOOST_TEST(cut("end   ") == (Texts{"end", "   "}));
  BOOST_TEST(cut("!? ...été") == (Texts{"!?", " ...", "été"}));
  BOOST_TEST(cut("\u00A0\u3000x") == (Texts{"\u00A0", "\u3000", "x"}));
}

BOOST_AUTO_TEST_CASE(smollm_cuts_every_digit_first) {
  const auto cut = [](std::string_view text) { return split(PreTokenizer::kSmolLm, text); };
  BOOST_TEST(cut("") == Texts{});
  BOOST_TEST(cut("x123 45") == (Texts{"x", "1", "2", "3", " ", "4", "5"}));
  BOOST_TEST(cut("a  1") == (Texts{"a", "  ", "1"}));  // nothing follows the spaces in their part
  BOOST_TEST(cut("½٣Ⅳ") == (Texts{"½", "٣", "Ⅳ"}));
  BOOST_TEST(cut("it's 7 o'clock") == (Texts{"it", "'s", " ", "7", " o", "'", "clock"}));
}

BOOST_AUTO_TEST_CASE(merges_by_rank) {
  const Tokenizer tokenizer = tiny_tokenizer();
  // "h e", "l l", "he ll", "hell o"; "Ġ w", "Ġw or", "Ġwor l".
  BOOST_TEST(pieces_of(tokenizer, "hello world") == (Texts{"hello", " worl", "d"}));
  // "in" (rank 2) before "Ġ i"; then "Ġ t" before "h e", and "Ġt he" has both.
  BOOST_TEST(pieces_of(tokenizer, "in the") == (Texts{"in", " the"}));
  BOOST_TEST(pieces_of(tokenizer, "heher") == (Texts{"he", "her"}));
  BOOST_TEST(pieces_of(tokenizer, "").empty());
}

BOOST_AUTO_TEST_CASE(equal_ranks_merge_from_the_left) {
  const auto tokenizer = read(tokenizer_file({"a", "aa", "aaa"}, {}, {"a a", "aa a"}));
  BOOST_REQUIRE(tokenizer.ok());
  BOOST_TEST(pieces_of(tokenizer.value(), "aaaaa") == (Texts{"aa", "aaa"}));
}

BOOST_AUTO_TEST_CASE(bytes_without_merges_stay_bytes) {
  const Tokenizer tokenizer = tiny_tokenizer();
  BOOST_TEST(pieces_of(tokenizer, "\xF0\x9F\xA6\x99") == (Texts{"\xF0", "\x9F", "\xA6", "\x99"}));
  const std::string zero(1, '\0');
  BOOST_TEST(pieces_of(tokenizer, zero) == Texts{zero});
}

// A client's text never becomes structure.
BOOST_AUTO_TEST_CASE(special_tokens_are_parsed_only_when_asked_for) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string text = "a<|im_end|><|im_start|>b";
  const auto plain = tokenizer.encode(text).value();
  for (const uint32_t token : plain) BOOST_TEST(!tokenizer.is_special(token));
  const auto parsed = tokenizer.encode(text, {.parse_special = true}).value();
  BOOST_REQUIRE(parsed.size() == 4U);
  BOOST_TEST(parsed[1] == kTinyMessageEnd);
  BOOST_TEST(parsed[2] == kTinyMessageStart);
  BOOST_TEST(tokenizer.special("<|im_end|>").value() == kTinyMessageEnd);
  BOOST_TEST(!tokenizer.special("hello").has_value());
}

BOOST_AUTO_TEST_CASE(the_longest_special_token_wins_and_user_defined_ones_are_text) {
  const auto read_result =
      read(tokenizer_file({"<", "x", ">", "<x", "<x>", "xx", "<|u|>"}, {1, 1, 1, 3, 3, 4, 4}, {}));
  require_ok(read_result);
  const Tokenizer& tokenizer = read_result.value();
  BOOST_TEST(pieces_of(tokenizer, "<x><x<xx", {.parse_special = true}) ==
             (Texts{"<x>", "<x", "<x", "x"}));
  BOOST_TEST(pieces_of(tokenizer, "<x><xx") == (Texts{"<", "x", ">", "<", "xx"}));
  // What looks like a control token is one, whatever the file calls it.
  BOOST_TEST(tokenizer.is_special(6));
}

BOOST_AUTO_TEST_CASE(knows_where_a_text_begins_and_ends) {
  const Tokenizer tokenizer = tiny_tokenizer();
  BOOST_TEST(tokenizer.is_end_of_generation(kTinyMessageEnd));
  BOOST_TEST(tokenizer.is_end_of_generation(kTinyEndOfText));
  BOOST_TEST(!tokenizer.is_end_of_generation(kTinyMessageStart));
  BOOST_TEST(!tokenizer.is_end_of_generation(1'000'000));
  BOOST_TEST(tokenizer.piece(1'000'000) == "");
  BOOST_TEST(tokenizer.encode("x", {.begin_text = true}).value().size() == 1U);
  GgufWriter writer = tokenizer_file({"x", "<s>"}, {1, 3}, {});
  writer.add_u32("tokenizer.ggml.bos_token_id", 1);
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  const Tokenizer with_begin = read(writer).value();
  BOOST_TEST(with_begin.encode("x", {.begin_text = true}).value() == (std::vector<uint32_t>{1, 0}));
  BOOST_TEST(with_begin.encode("x").value() == (std::vector<uint32_t>{0}));
}

BOOST_AUTO_TEST_CASE(refuses_what_it_cannot_encode) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const Error broken = tokenizer.encode("ab\xFF").error();
  BOOST_TEST((broken.code == ErrorCode::kInvalidArgument));
  BOOST_TEST(broken.message == "text is not UTF-8: byte 0xff at offset 2");
  const Error longer = tokenizer.encode("abcd", {.bytes_max = 3}).error();
  BOOST_TEST((longer.code == ErrorCode::kResourceExhausted));
  BOOST_TEST(longer.message == "text of 4 bytes, limit 3");
  const Error unknown = read(tokenizer_file({"a"}, {}, {})).value().encode("ab").error();
  BOOST_TEST((unknown.code == ErrorCode::kInvalidArgument));
  BOOST_TEST(unknown.message == "byte 0x62 has no token in the model's vocabulary");
}

BOOST_AUTO_TEST_CASE(a_tokenizer_that_contradicts_itself_is_refused) {
  const auto refused = [](const GgufWriter& writer, const char* says) {
    const Result<Tokenizer> tokenizer = read(writer);
    BOOST_TEST(!tokenizer.ok());
    if (!tokenizer.ok()) check_refused(tokenizer.error(), says);
  };
  refused(tokenizer_file({}, {}, {}), "0 tokens");
  refused(tokenizer_file({"a", "a"}, {}, {}), "token 'a' appears twice");
  refused(tokenizer_file({"a"}, {1, 1}, {}), "2 entries in tokenizer.ggml.token_type for 1 tokens");
  refused(tokenizer_file({"a"}, {7}, {}), "token 0 is of type 7");
  refused(tokenizer_file({"a", "b"}, {}, {"a b"}), "merge 0 'a b' names what is not");
  refused(tokenizer_file({"a", "aa"}, {}, {"aa"}), "is not two tokens");
  refused(tokenizer_file({"a", "aa"}, {}, {"a a a"}), "is not two tokens");
  refused(tokenizer_file({"a", "aa"}, {}, {"a a", "a a"}), "merge 1 'a a' appears twice");
  refused(tokenizer_file({std::string(5000, 'a')}, {}, {}), "5000 bytes, limit 4096");
  GgufWriter writer = tokenizer_file({"a"}, {}, {});
  writer.add_u32("tokenizer.ggml.eos_token_id", 1);
  refused(writer, "eos_token_id is 1, the vocabulary has 1 tokens");
  writer = tokenizer_file({"a"}, {}, {});
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  refused(writer, "there is no bos_token_id");
  GgufWriter other;
  other.add_text("tokenizer.ggml.model", "llama");
  refused(other, "tokenizer model 'llama', supported is gpt2");
  GgufWriter pre;
  pre.add_text("tokenizer.ggml.model", "gpt2");
  pre.add_text("tokenizer.ggml.pre", "unheard");
  refused(pre, "pre-tokenizer 'unheard', supported are");
  BOOST_TEST((read(GgufWriter{}).error().code == ErrorCode::kNotFound));
}

// tiny_tokenizer_pairs.json was made by tools/make_tokenizer_pairs.py: the `tokenizers` package
// (another implementation) on the same vocabulary and merges, over random texts.
BOOST_AUTO_TEST_CASE(agrees_with_the_tokenizers_package) {
  const Tokenizer tokenizer = tiny_tokenizer();
  std::ifstream file("tests/unit/models/tiny_tokenizer_pairs.json");
  BOOST_REQUIRE(file.good());
  const nlohmann::json pairs = nlohmann::json::parse(file);
  BOOST_REQUIRE(pairs.size() >= 100U);
  for (const auto& pair : pairs) {
    const auto text = pair["text"].get<std::string>();
    const auto tokens = tokenizer.encode(text, {.parse_special = true});
    require_ok(tokens);
    BOOST_TEST(tokens.value() == pair["tokens"].get<std::vector<uint32_t>>(),
               boost::test_tools::per_element());
  }
}

// pretokenizer_pieces.json was made by tools/make_pretokenizer_pieces.py: the models' own regular
// expressions, run by the `tokenizers` package.
BOOST_AUTO_TEST_CASE(pieces_are_those_of_the_regular_expressions) {
  std::ifstream file("tests/unit/models/pretokenizer_pieces.json");
  BOOST_REQUIRE(file.good());
  const nlohmann::json cases = nlohmann::json::parse(file);
  BOOST_REQUIRE(cases.size() >= 100U);
  for (const auto& one : cases) {
    const auto kind = parse_pre_tokenizer(one["kind"].get<std::string>());
    require_ok(kind);
    const auto text = one["text"].get<std::string>();
    std::vector<std::string_view> pieces;
    pre_tokenize(kind.value(), text, pieces);
    const auto wanted = one["pieces"].get<std::vector<std::string>>();
    BOOST_TEST(std::vector<std::string>(pieces.begin(), pieces.end()) == wanted,
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(text_comes_back_whatever_it_is) {
  const uint64_t seed = 20'240'501;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  const Tokenizer tokenizer = tiny_tokenizer();
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_text(random, 1 + random() % 40);
    for (const bool special : {false, true}) {
      const auto tokens = tokenizer.encode(text, {.parse_special = special}).value();
      Detokenizer detokenizer(tokenizer, true);
      std::string back;
      for (const uint32_t token : tokens) {
        const std::string part = detokenizer.feed(token);
        BOOST_REQUIRE_EQUAL(valid_utf8_prefix(part), part.size());
        back += part;
      }
      BOOST_REQUIRE_EQUAL(back + detokenizer.flush(), text);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_code_point_is_never_split) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto tokens = tokenizer.encode("a\xF0\x9F\xA6\x99z").value();
  BOOST_REQUIRE(tokens.size() == 6U);
  Detokenizer detokenizer(tokenizer);
  Texts parts;
  for (const uint32_t token : tokens) parts.push_back(detokenizer.feed(token));
  BOOST_TEST(parts == (Texts{"a", "", "", "", "\xF0\x9F\xA6\x99", "z"}));
  BOOST_TEST(detokenizer.flush() == "");
}

BOOST_AUTO_TEST_CASE(what_cannot_be_text_becomes_the_replacement_character) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto llama = tokenizer.encode("\xF0\x9F\xA6\x99").value();
  const uint32_t letter = tokenizer.encode("z").value().front();
  Detokenizer detokenizer(tokenizer);
  BOOST_TEST(detokenizer.feed(llama[0]) == "");
  BOOST_TEST(detokenizer.feed(llama[1]) == "");
  BOOST_TEST(detokenizer.feed(letter) == "\uFFFDz");   // the start that nothing completed: one mark
  BOOST_TEST(detokenizer.feed(llama[3]) == "\uFFFD");  // a byte that starts nothing
  BOOST_TEST(detokenizer.feed(llama[0]) == "");
  BOOST_TEST(detokenizer.flush() == "\uFFFD");
  BOOST_TEST(detokenizer.flush() == "");
}

BOOST_AUTO_TEST_CASE(special_tokens_show_only_when_told) {
  const Tokenizer tokenizer = tiny_tokenizer();
  BOOST_TEST(Detokenizer(tokenizer).feed(kTinyMessageEnd) == "");
  BOOST_TEST(Detokenizer(tokenizer, true).feed(kTinyMessageEnd) == "<|im_end|>");
  BOOST_TEST(Detokenizer(tokenizer).feed(4'000'000'000U) == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

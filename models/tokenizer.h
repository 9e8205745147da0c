// Text to tokens and back, as the model's file says. Supported: byte-level BPE
// (tokenizer.ggml.model "gpt2") with the pre-tokenizers of tokenizers/pretokenizer.h.
//
// Special tokens (<|im_start|>, end of text, …) are structure, not text. They are recognised in a
// text only where the caller asks for it: a chat template's own pieces ask, what a client wrote
// never does, so that no client can close its own message and open another's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/gguf.h"

namespace troupe {

inline constexpr size_t kEncodeBytesMax = 1 << 20;
inline constexpr size_t kTokenBytesMax = 4096;  // of one token's text

struct EncodeOptions {
  bool parse_special =
      false;  // special tokens' texts become the tokens; else they are text like any other
  bool begin_text = false;  // put the model's begin-of-text token in front, if the model wants one
  size_t bytes_max = kEncodeBytesMax;
};

class Tokenizer {
 public:
  // Errors: kInvalidFile for a tokenizer that is not supported or contradicts itself, kNotFound for
  // a file without one.
  static Result<Tokenizer> from(const GgufFile& file);

  // Errors: kInvalidArgument (not UTF-8, or a byte for which the vocabulary has no token),
  // kResourceExhausted (longer than bytes_max).
  Result<std::vector<uint32_t>> encode(std::string_view text,
                                       const EncodeOptions& options = {}) const;

  uint32_t vocabulary() const;
  // The token's bytes: perhaps only part of a code point. Empty for a token that is not in the
  // vocabulary.
  std::string_view piece(uint32_t token) const;
  // Control tokens and the unknown token: not part of any text.
  bool is_special(uint32_t token) const;
  // The model has said all it wanted to: end of text, of turn, of message.
  bool is_end_of_generation(uint32_t token) const;
  // A special token by its text.
  std::optional<uint32_t> special(std::string_view text) const;
  struct SpecialMatch {
    size_t offset, bytes;
    uint32_t token;
  };
  // The first text of a special token at or behind `offset`; nothing if there is none.
  std::optional<SpecialMatch> find_special(std::string_view text, size_t offset) const;
  std::optional<uint32_t> begin_of_text() const;
  std::optional<uint32_t> end_of_text() const;

 private:
  struct Vocabulary;
  friend class VocabularyReader;
  explicit Tokenizer(std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}
  Result<void> encode_plain(std::string_view text, std::vector<uint32_t>& tokens) const;

  std::shared_ptr<const Vocabulary> vocabulary_;  // shared: copies are cheap
};

// Turns a stream of tokens into text of whole code points. What can never become one is replaced by
// U+FFFD, so the text is always valid UTF-8.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, bool show_special = false)
      : tokenizer_(std::move(tokenizer)), show_special_(show_special) {}

  // The text that is complete with this token; often empty while a code point is under way.
  std::string feed(uint32_t token);
  // The end: U+FFFD if a code point is incomplete. Ready for another text afterwards.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  bool show_special_;
  std::string pending_;  // at most 3 bytes: the start of a code point
};

}  // namespace troupe

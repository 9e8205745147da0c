// Pre-tokenizers cut a text into the pieces inside which byte-pair encoding merges. Each is a
// matcher written by hand for the one regular expression its model was trained with; regular
// expression engines would need Unicode classes and are slower.
//
//   gpt-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm   \p{N} cuts the text first, each number character being a piece; then gpt-2 inside what
//   is between, of
//            which it sees nothing but itself ("a  1": the two spaces stay together, nothing
//            follows them)
//   qwen2    (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|
//            \s*[\r\n]+|\s+(?!\S)|\s+
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace troupe {

enum class PreTokenizer : uint8_t { kGpt2, kSmolLm, kQwen2 };

// By the name in tokenizer.ggml.pre. kInvalidFile, with the names there are, for another.
Result<PreTokenizer> parse_pre_tokenizer(std::string_view name);

// Appends the pieces of `text`, which is valid UTF-8; together they are the text. Linear in its
// length.
void pre_tokenize(PreTokenizer kind, std::string_view text, std::vector<std::string_view>& pieces);

}  // namespace troupe

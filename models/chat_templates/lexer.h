// A chat template's text as tokens: Jinja's delimiters {{ }}, {% %}, {# #}, with the whitespace
// rules that models' templates are written for (trim_blocks and lstrip_blocks on, one line feed at
// the end dropped), and the words of expressions.
// Source: Jinja's documentation, "Template Designer Documentation", whitespace control.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace troupe::chat {

inline constexpr size_t kTemplateBytesMax = 1 << 20;

enum class TokenKind : uint8_t {
  kText,
  kOpenOutput,   // {{
  kCloseOutput,  // }}
  kOpenBlock,    // {%
  kCloseBlock,   // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // a string's is decoded
  uint32_t line = 1, column = 1;
};

// " at line L, column C"; columns count bytes.
std::string at_place(uint32_t line, uint32_t column);

// The last token is kEnd. Errors: kInvalidFile, with line and column.
Result<std::vector<Token>> tokenise(std::string_view source);

}  // namespace troupe::chat

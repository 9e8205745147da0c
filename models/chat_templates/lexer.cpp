#include "models/chat_templates/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/gguf.h"

namespace troupe::chat {

std::string at_place(uint32_t line, uint32_t column) {
  return fmt::format(" at line {}, column {}", line, column);
}

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
    return put(0x80 | (code & 0x3F));
  }
  if (code < 0x10000) {
    put(0xE0 | code >> 12);
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
  }
  put(0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (place_ < source_.size()) TROUPE_TRY_VOID(text_and_tag());
    add(TokenKind::kEnd, "", place_);
    return std::move(tokens_);
  }

 private:
  Error fail(size_t place, const std::string& what) {
    locate(place);
    return {ErrorCode::kInvalidFile, "chat template: " + what + at_place(line_, column_)};
  }

  // Places are asked for in rising order, so that all of them together cost one pass.
  void locate(size_t place) {
    for (; located_ < place && located_ < source_.size(); ++located_) {
      ++column_;
      if (source_[located_] == '\n') {
        ++line_;
        column_ = 1;
      }
    }
  }

  void add(TokenKind kind, std::string text, size_t place) {
    locate(place);
    tokens_.push_back({kind, std::move(text), line_, column_});
  }

  bool at(std::string_view text) const { return source_.compare(place_, text.size(), text) == 0; }

  void skip_space() {
    while (place_ < source_.size() && is_space(source_[place_])) ++place_;
  }

  // Text up to a tag that starts at `tag`, whose opening may be followed by a sign.
  void add_text(size_t begin, size_t tag, bool strips_line) {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    size_t end = tag;
    if (sign == '-') {
      while (end > begin && is_space(source_[end - 1])) --end;
    } else if (strips_line && sign != '+') {
      size_t start = end;
      while (start > begin && is_space(source_[start - 1]) && source_[start - 1] != '\n') --start;
      const bool line_start = start > begin ? source_[start - 1] == '\n' : line_starting_;
      if (line_start) end = start;
    }
    if (end > begin) add(TokenKind::kText, source_.substr(begin, end - begin), begin);
    place_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
  }

  // Behind a block or a comment: what its sign says, or one line feed (trim_blocks).
  void after_tag(char sign) {
    const size_t before = place_;
    if (sign == '-') skip_space();
    if (sign == ' ' && at("\n")) ++place_;
    line_starting_ = place_ > before && source_[place_ - 1] == '\n';
  }

  Result<void> text_and_tag() {
    size_t tag = place_;
    const size_t begin = place_;
    const auto opens = [&](size_t i) {
      return source_[i] == '{' &&
             (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#');
    };
    while (tag + 1 < source_.size() && !opens(tag)) ++tag;
    if (tag + 1 >= source_.size()) {
      add(TokenKind::kText, source_.substr(begin), begin);
      place_ = source_.size();
      return {};
    }
    const char kind = source_[tag + 1];
    add_text(begin, tag, kind != '{');
    if (kind == '#') return comment(tag);
    if (kind == '%' && is_raw()) return raw(tag);
    add(kind == '{' ? TokenKind::kOpenOutput : TokenKind::kOpenBlock, "", tag);
    return expression(kind == '{' ? "}}" : "%}", tag);
  }

  Result<void> comment(size_t tag) {
    const size_t end = source_.find("#}", place_);
    if (end == std::string::npos) return fail(tag, "a comment without its end '#}'");
    const char last = end > place_ ? source_[end - 1] : ' ';
    place_ = end + 2;
    after_tag(last == '-' || last == '+' ? last : ' ');
    return {};
  }

  // At "raw %}" or "raw -%}", with spaces anywhere; then place_ is behind it.
  bool is_raw() {
    const size_t before = place_;
    skip_space();
    if (at("raw")) {
      place_ += 3;
      skip_space();
      if (at("-%}") || at("%}")) {
        const bool strips = at("-%}");
        place_ += strips ? 3 : 2;
        if (strips) skip_space();
        return true;
      }
    }
    place_ = before;
    return false;
  }

  Result<void> raw(size_t tag) {
    const size_t begin = place_;
    line_starting_ = place_ > 0 && source_[place_ - 1] == '\n';
    for (size_t end = source_.find("{%", begin); end != std::string::npos;
         end = source_.find("{%", end + 2)) {
      size_t i = end + 2;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      while (i < source_.size() && is_space(source_[i])) ++i;
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      while (i < source_.size() && is_space(source_[i])) ++i;
      const char sign =
          i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : ' ';
      if (sign != ' ') ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      add_text(begin, end, true);
      place_ = i + 2;
      after_tag(sign);
      return {};
    }
    return fail(tag, "a raw block without its '{% endraw %}'");
  }

  Result<void> expression(std::string_view closing, size_t tag) {
    std::string open;  // brackets that wait for their end
    while (true) {
      skip_space();
      if (place_ >= source_.size())
        return fail(tag, fmt::format("a tag without its end '{}'", closing));
      const bool sign = source_[place_] == '-' || source_[place_] == '+';
      if (open.empty() && source_.compare(place_ + (sign ? 1 : 0), 2, closing) == 0 &&
          !(closing == "}}" && source_[place_] == '+')) {
        const char kind = sign ? source_[place_] : ' ';
        add(closing == "}}" ? TokenKind::kCloseOutput : TokenKind::kCloseBlock, "", place_);
        place_ += sign ? 3 : 2;
        if (closing == "}}") {
          if (kind == '-') skip_space();
          line_starting_ = source_[place_ - 1] == '\n';
        } else {
          after_tag(kind);
        }
        return {};
      }
      TROUPE_TRY_VOID(word(open));
    }
  }

  Result<void> word(std::string& open) {
    const char c = source_[place_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return quoted(c);
    const size_t begin = place_;
    if (is_word(c)) {
      while (place_ < source_.size() && is_word(source_[place_])) ++place_;
      add(TokenKind::kName, source_.substr(begin, place_ - begin), begin);
      return {};
    }
    constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view pair : kPairs) {
      if (!at(pair)) continue;
      add(TokenKind::kOperator, std::string(pair), begin);
      place_ += 2;
      return {};
    }
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos)
      return fail(begin, fmt::format("unexpected character '{}'", printable({&c, 1})));
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        return fail(begin, fmt::format("'{}' where {} was expected", c,
                                       open.empty() ? std::string("no bracket")
                                                    : fmt::format("'{}'", open.back())));
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c), begin);
    ++place_;
    return {};
  }

  Result<void> number() {
    const size_t begin = place_;
    bool real = false;
    std::string digits;
    const auto take = [&] {
      for (; place_ < source_.size() && (is_digit(source_[place_]) || source_[place_] == '_');
           ++place_)
        if (source_[place_] != '_') digits.push_back(source_[place_]);
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    take();
    if (at(".") && digit_at(place_ + 1)) {
      real = true;
      digits.push_back(source_[place_++]);
      take();
    }
    if (at("e") || at("E")) {
      const size_t sign = place_ + 1;
      const bool has_sign = sign < source_.size() && (source_[sign] == '+' || source_[sign] == '-');
      if (digit_at(sign + (has_sign ? 1 : 0))) {
        real = true;
        digits += source_.substr(place_, has_sign ? 2 : 1);
        place_ += has_sign ? 2 : 1;
        take();
      }
    }
    if (digits.size() > 64) return fail(begin, "a number of more than 64 digits");
    add(real ? TokenKind::kFloat : TokenKind::kInteger, digits, begin);
    return {};
  }

  Result<void> quoted(char quote) {
    const size_t begin = place_++;
    std::string text;
    while (place_ < source_.size() && source_[place_] != quote) {
      if (source_[place_] != '\\') {
        text.push_back(source_[place_++]);
        continue;
      }
      TROUPE_TRY_VOID(escape(text));
    }
    if (place_ >= source_.size()) return fail(begin, "a string without its closing quote");
    ++place_;
    add(TokenKind::kString, std::move(text), begin);
    return {};
  }

  // Python's escapes; an unknown one stays as it is.
  Result<void> escape(std::string& text) {
    const size_t begin = place_++;
    if (place_ >= source_.size()) return fail(begin, "a string without its closing quote");
    const char c = source_[place_++];
    constexpr std::string_view kFrom = "ntr\\'\"abfv";
    constexpr std::string_view kTo = "\n\t\r\\'\"\a\b\f\v";
    if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
      text.push_back(kTo[known]);
      return {};
    }
    if (c == '\n') return {};
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
      --place_;
      for (int i = 0;
           i < 3 && place_ < source_.size() && source_[place_] >= '0' && source_[place_] <= '7';
           ++i)
        code = code * 8 + static_cast<uint32_t>(source_[place_++] - '0');
      append_utf8(text, code);
      return {};
    }
    const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (length == 0) {
      text.push_back('\\');
      text.push_back(c);
      return {};
    }
    constexpr std::string_view kHex = "0123456789abcdef";
    for (size_t i = 0; i < length; ++i) {
      const char digit = place_ < source_.size() ? source_[place_++] : ' ';
      const size_t value = kHex.find(static_cast<char>(is_digit(digit) ? digit : digit | 0x20));
      if (value == std::string_view::npos)
        return fail(begin, fmt::format("an escape '\\{}' needs {} hexadecimal digits", c, length));
      code = code * 16 + static_cast<uint32_t>(value);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return fail(begin, fmt::format("an escape of U+{:X}, which is no code point", code));
    append_utf8(text, code);
    return {};
  }

  std::string source_;
  size_t place_ = 0, located_ = 0;
  uint32_t line_ = 1, column_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenise(std::string_view source) {
  if (source.size() > kTemplateBytesMax)
    return Error{ErrorCode::kInvalidFile, fmt::format("chat template of {} bytes, limit {}",
                                                      source.size(), kTemplateBytesMax)};
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) text.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace troupe::chat

#include "models/tokenizers/pretokenizer.h"

#include <fmt/format.h>

#include <string>

#include "models/gguf.h"
#include "models/tokenizers/unicode.h"

namespace troupe {

namespace {

struct Seen {
  CodePointClass kind = CodePointClass::kOther;
  uint32_t bytes = 0;  // 0 at the end of the text
};

Seen look(std::string_view text, size_t offset) {
  if (offset >= text.size()) return {};
  const DecodedCodePoint decoded = decode_utf8(text.substr(offset));
  return {class_of(decoded.code_point), decoded.bytes};
}

// 's 't 're 've 'm 'll 'd: bytes matched, or 0.
size_t contraction(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(ending)) return ending.size();
  return 0;
}

// \s+(?!\S)|\s+: all of the white space if the text ends with it; else all but its last code point,
// which the next piece may take if it is a space; but at least one.
size_t white_space(std::string_view text) {
  size_t end = 0, before_last = 0;
  for (Seen seen = look(text, 0); seen.bytes != 0 && seen.kind == CodePointClass::kSpace;
       seen = look(text, end)) {
    before_last = end;
    end += seen.bytes;
  }
  return end == text.size() || before_last == 0 ? end : before_last;
}

// Bytes of the first piece of a text that is not empty.
size_t gpt2_piece(std::string_view text) {
  if (const size_t matched = contraction(text); matched != 0) return matched;
  // " ?X+" for the three classes that are not white space.
  size_t end = text.front() == ' ' ? 1 : 0;
  const Seen first = look(text, end);
  if (first.bytes == 0 || first.kind == CodePointClass::kSpace) return white_space(text);
  for (Seen seen = first; seen.bytes != 0 && seen.kind == first.kind; seen = look(text, end))
    end += seen.bytes;
  return end;
}

void split_gpt2(std::string_view text, std::vector<std::string_view>& pieces) {
  while (!text.empty()) {
    const size_t size = gpt2_piece(text);
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
}

void split_smollm(std::string_view text, std::vector<std::string_view>& pieces) {
  size_t start = 0, offset = 0;
  while (offset < text.size()) {
    const Seen seen = look(text, offset);
    if (seen.kind == CodePointClass::kNumber) {
      split_gpt2(text.substr(start, offset - start), pieces);
      pieces.push_back(text.substr(offset, seen.bytes));
      start = offset + seen.bytes;
    }
    offset += seen.bytes;
  }
  split_gpt2(text.substr(start), pieces);
}

// The same in any case.
size_t contraction_in_any_case(std::string_view text) {
  std::string front(text.substr(0, 3));
  for (char& c : front)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return contraction(front);
}

bool is_line_end(std::string_view text, size_t offset) {
  return offset < text.size() && (text[offset] == '\r' || text[offset] == '\n');
}

// End of the run of one class that begins at `offset`.
size_t run_end(std::string_view text, size_t offset, CodePointClass kind) {
  for (Seen seen = look(text, offset); seen.bytes != 0 && seen.kind == kind;
       seen = look(text, offset))
    offset += seen.bytes;
  return offset;
}

// \s*[\r\n]+: white space up to its last line end; 0 if there is none.
size_t lines(std::string_view text) {
  size_t end = 0, offset = 0;
  for (Seen seen = look(text, 0); seen.bytes != 0 && seen.kind == CodePointClass::kSpace;
       seen = look(text, offset)) {
    offset += seen.bytes;
    if (is_line_end(text, offset - 1)) end = offset;
  }
  return end;
}

// Bytes of the first piece of a text that is not empty: the alternatives in their order.
size_t qwen2_piece(std::string_view text) {
  if (const size_t matched = contraction_in_any_case(text); matched != 0) return matched;
  const Seen first = look(text, 0), second = look(text, first.bytes);
  if (first.kind == CodePointClass::kLetter) return run_end(text, 0, CodePointClass::kLetter);
  if (first.kind == CodePointClass::kNumber) return first.bytes;
  if (second.bytes != 0 && second.kind == CodePointClass::kLetter && !is_line_end(text, 0))
    return run_end(text, first.bytes, CodePointClass::kLetter);
  const size_t start = text.front() == ' ' ? 1 : 0;
  size_t end = run_end(text, start, CodePointClass::kOther);
  if (end > start) {
    while (is_line_end(text, end)) ++end;
    return end;
  }
  if (const size_t matched = lines(text); matched != 0) return matched;
  return white_space(text);
}

void split_qwen2(std::string_view text, std::vector<std::string_view>& pieces) {
  while (!text.empty()) {
    const size_t size = qwen2_piece(text);
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
}

}  // namespace

Result<PreTokenizer> parse_pre_tokenizer(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  // StarCoder's was trained with the same expressions as SmolLM's.
  if (name == "smollm" || name == "starcoder") return PreTokenizer::kSmolLm;
  if (name == "qwen2" || name == "deepseek-r1-qwen") return PreTokenizer::kQwen2;
  return Error{ErrorCode::kInvalidFile,
               fmt::format("pre-tokenizer '{}', supported are gpt-2, smollm, starcoder, qwen2 and "
                           "deepseek-r1-qwen",
                           printable(name))};
}

void pre_tokenize(PreTokenizer kind, std::string_view text, std::vector<std::string_view>& pieces) {
  switch (kind) {
    case PreTokenizer::kGpt2:
      return split_gpt2(text, pieces);
    case PreTokenizer::kSmolLm:
      return split_smollm(text, pieces);
    case PreTokenizer::kQwen2:
      return split_qwen2(text, pieces);
  }
}

}  // namespace troupe

#include "models/tokenizers/unicode.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "models/tokenizers/unicode_tables.h"

namespace troupe {

namespace {

bool within(std::span<const CodePointRange> ranges, uint32_t code_point) {
  const auto next = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](uint32_t point, const CodePointRange& range) { return point < range.first; });
  return next != ranges.begin() && code_point <= std::prev(next)->last;
}

CodePointClass look_up(uint32_t code_point) {
  if (within(letter_ranges(), code_point)) return CodePointClass::kLetter;
  if (within(number_ranges(), code_point)) return CodePointClass::kNumber;
  if (within(space_ranges(), code_point)) return CodePointClass::kSpace;
  return CodePointClass::kOther;
}

unsigned byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

CodePointClass class_of(uint32_t code_point) {
  constexpr uint32_t kDirect = 0x250;  // Latin: most of most texts
  static const std::array<CodePointClass, kDirect> direct = [] {
    std::array<CodePointClass, kDirect> classes{};
    for (uint32_t i = 0; i < kDirect; ++i) classes[i] = look_up(i);
    return classes;
  }();
  return code_point < kDirect ? direct[code_point] : look_up(code_point);
}

DecodedCodePoint decode_utf8(std::string_view text) {
  TROUPE_CHECK(!text.empty(), "there is a byte to decode");
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return {Utf8Status::kValid, lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Status::kInvalid, kReplacementCharacter, 1};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF
  // (Unicode, table 3-7).
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  uint32_t code_point = lead & (0x7FU >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Status::kIncomplete, kReplacementCharacter, i};
    const unsigned byte = byte_at(text, i);
    if (byte < low || byte > high) return {Utf8Status::kInvalid, kReplacementCharacter, i};
    code_point = (code_point << 6) | (byte & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::kValid, code_point, length};
}

void append_utf8(std::string& text, uint32_t code_point) {
  TROUPE_CHECK(code_point <= 0x10FFFF, "code points end at U+10FFFF");
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_tail = [&](uint32_t shift) { put(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put_tail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put_tail(6);
    put_tail(0);
  } else {
    put(0xF0 | (code_point >> 18));
    put_tail(12);
    put_tail(6);
    put_tail(0);
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const DecodedCodePoint decoded = decode_utf8(text.substr(offset));
    if (decoded.status != Utf8Status::kValid) break;
    offset += decoded.bytes;
  }
  return offset;
}

}  // namespace troupe

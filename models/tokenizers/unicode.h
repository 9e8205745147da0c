// UTF-8, strictly (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), and the
// three classes of code points that pre-tokenizers know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;

enum class CodePointClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// \p{L}, \p{N}, \s (property White_Space), or none of them.
CodePointClass class_of(uint32_t code_point);

enum class Utf8Status : uint8_t {
  kValid,       // `bytes` bytes are code point `code_point`
  kInvalid,     // the first `bytes` bytes can be the start of nothing (a "maximal subpart": replace
                // them by one U+FFFD)
  kIncomplete,  // all bytes given are the start of a code point that more bytes may complete
};

struct DecodedCodePoint {
  Utf8Status status = Utf8Status::kInvalid;
  uint32_t code_point = kReplacementCharacter;
  uint32_t bytes = 0;  // at least 1
};

// Decodes the code point at the front of a text that is not empty.
DecodedCodePoint decode_utf8(std::string_view text);

// Appends a code point up to U+10FFFF.
void append_utf8(std::string& text, uint32_t code_point);

// Offset of the first byte that is not part of a valid code point; text.size() if all are.
size_t valid_utf8_prefix(std::string_view text);

}  // namespace troupe

// Texts from and for peers. Names are checked (they become keys, paths and log fields); text for
// people is cleaned (a broken byte in an error message must not cost the message). Both end up as
// valid UTF-8 without control characters, so that logs and JSON need not check again.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

// Length of the valid UTF-8 sequence at the front (RFC 3629: no overlong forms, no surrogates), 0
// if there is none.
inline size_t utf8_length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

inline bool is_control_character(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

inline bool is_clean_text(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || is_control_character(text.front())) return false;
    text.remove_prefix(length);
  }
  return true;
}

// At most `bytes_max` bytes, cut between characters; what is not clean becomes '?', line ends
// become spaces.
inline std::string clean_text(std::string_view text, size_t bytes_max) {
  std::string clean;
  while (!text.empty()) {
    const size_t valid = utf8_length(text);
    const size_t length = valid == 0 ? 1 : valid;
    if (clean.size() + length > bytes_max) break;
    if (text.front() == '\n' || text.front() == '\r' || text.front() == '\t') {
      clean += ' ';
    } else if (valid == 0 || is_control_character(text.front())) {
      clean += '?';
    } else {
      clean += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return clean;
}

}  // namespace troupe

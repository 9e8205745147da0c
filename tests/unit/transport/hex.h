// Addresses on command lines.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace troupe::test {

inline std::string to_hex_text(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

inline std::vector<std::byte> from_hex_text(std::string_view text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(
        static_cast<std::byte>(std::strtoul(std::string(text.substr(i, 2)).c_str(), nullptr, 16)));
  return bytes;
}

}  // namespace troupe::test

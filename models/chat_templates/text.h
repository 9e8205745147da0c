// A string of a chat template that knows where each of its bytes comes from: from the template
// (trusted) or from data, that is from messages, tools and documents (not trusted). Operations on
// strings carry the origin of every byte along, so that after any trimming, slicing, joining and
// replacing a tokenizer still knows which bytes may be searched for special tokens.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::chat {

struct Text {
  std::string bytes;
  std::string trust;  // as long as bytes; 1: written by the template, 0: data

  static Text of(std::string_view bytes, bool trusted) {
    return {std::string(bytes), std::string(bytes.size(), trusted ? '\1' : '\0')};
  }
  size_t size() const { return bytes.size(); }
  void append(const Text& other) {
    bytes += other.bytes;
    trust += other.trust;
  }
  void append(std::string_view other, bool trusted) {
    bytes += other;
    trust.append(other.size(), trusted ? '\1' : '\0');
  }
  void append_part(const Text& other, size_t offset, size_t count) {
    bytes.append(other.bytes, offset, count);
    trust.append(other.trust, offset, count);
  }
  // offset <= size(); a count that is too large ends at the end.
  Text part(size_t offset, size_t count = std::string::npos) const {
    return {bytes.substr(offset, count), trust.substr(offset, count)};
  }
  // Whether all of it was written by the template.
  bool trusted() const { return trust.find('\0') == std::string::npos; }
};

}  // namespace troupe::chat

// Identities. Each is its own type, so that a view cannot be passed where an incarnation is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace troupe {

template <class Tag>
struct Id64 {
  uint64_t value = 0;  // 0 names nothing
  friend auto operator<=>(const Id64&, const Id64&) = default;
  explicit operator bool() const { return value != 0; }
};

using Incarnation = Id64<struct IncarnationTag>;  // random; one life of one actor or process
using ViewNumber = Id64<struct ViewTag>;          // 1, 2, …; totally ordered per deployment
using SequenceId = Id64<struct SequenceTag>;  // a request inside one batcher, never reused by it
using MicroBatchId = Id64<struct MicroBatchTag>;  // grows by one with each micro-batch of a batcher

// A node's stable name from its configuration, for example "node-1". Its incarnation tells lives
// apart.
using NodeId = std::string;
// Idempotency key of a request: chosen by the client or made for it; 1 to 128 printable characters.
using RequestId = std::string;

// Sixteen lower-case hexadecimal digits.
std::string to_hex(uint64_t value);
template <class Tag>
std::string to_string(Id64<Tag> id) {
  return to_hex(id.value);
}

inline std::string to_hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[(value >> (4 * i)) & 15];
  return text;
}

}  // namespace troupe

template <class Tag>
struct std::hash<troupe::Id64<Tag>> {
  size_t operator()(troupe::Id64<Tag> id) const noexcept { return std::hash<uint64_t>{}(id.value); }
};

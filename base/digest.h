// Digests: XXH3 (the xxHash library). They find corruption and name content; they do not stop a
// forger.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace troupe {

// 64 bits over the bytes; `key` makes digests of different clusters differ.
uint64_t digest64(ByteSpan bytes, uint64_t key = 0);

// A digest fed piece by piece: the same value as over the concatenation.
class DigestStream {
 public:
  explicit DigestStream(uint64_t key = 0);
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;
  void add(ByteSpan bytes);
  uint64_t value() const;

 private:
  void* state_;
};

// 128 bits as 32 hexadecimal digits: names a model file by its content within a cluster.
std::string content_id(ByteSpan bytes);

}  // namespace troupe

#include "base/digest.h"

#include <xxhash.h>

#include "base/ids.h"

namespace troupe {

uint64_t digest64(ByteSpan bytes, uint64_t key) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), key);
}

DigestStream::DigestStream(uint64_t key) : state_(XXH3_createState()) {
  TROUPE_CHECK(state_ != nullptr, "a digest state is a few hundred bytes");
  XXH3_64bits_reset_withSeed(static_cast<XXH3_state_t*>(state_), key);
}

DigestStream::~DigestStream() {
  XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}

void DigestStream::add(ByteSpan bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}

uint64_t DigestStream::value() const {
  return XXH3_64bits_digest(static_cast<XXH3_state_t*>(state_));
}

std::string content_id(ByteSpan bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return to_hex(hash.high64) + to_hex(hash.low64);
}

}  // namespace troupe

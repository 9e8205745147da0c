// What a link says besides control messages (schemas/link.capnp), as values and bytes. Pure;
// decoding trusts no byte.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/peer/peer_links.h"

namespace troupe {

inline constexpr size_t kClusterIdMax = 128;  // bytes

struct LinkHello {
  PeerHello peer;
  uint64_t token =
      0;  // names this end of the link to the beat stream that will join it; random, not 0
};

struct Goodbye {
  Error why;
};

// What is wrong with a hello in itself: kInvalidArgument.
Result<void> check_hello(const PeerHello& hello);
// Why `ours` will not link with `theirs`: kInvalidArgument, says what both sides have.
Result<void> check_compatible(const PeerHello& ours, const PeerHello& theirs);

Result<SharedBuffer> encode_hello(const LinkHello& hello);
Result<LinkHello> decode_hello(ByteSpan bytes);
Result<SharedBuffer> encode_beat_hello(uint64_t token);
Result<uint64_t> decode_beat_hello(ByteSpan bytes);
// At most kBeatProgressMax entries are taken.
Result<SharedBuffer> encode_beat(const Beat& beat);
Result<Beat> decode_beat(ByteSpan bytes);
Result<SharedBuffer> encode_goodbye(const Error& why);
Result<Goodbye> decode_goodbye(ByteSpan bytes);

}  // namespace troupe

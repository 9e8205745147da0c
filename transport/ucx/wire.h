// What Troupe puts into UCX's active messages: a fixed envelope as the message's header, bytes as
// its data. Pure: no UCX here, and no byte is believed before it was checked.
//
//   hello    data: our address. Opens a connection; the receiver connects back to it.
//   welcome  the hello was taken.
//   refuse   data: why. The connection ends, both ways.
//   credit   number: how many frames of the connection were released since its beginning.
//   goodbye  the sender closed the connection.
//   frame    number: 1, 2, … within the connection. data: encoded header, padding up to 64,
//   payload.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/frame.h"

namespace troupe::ucx {

enum class MessageKind : uint8_t {
  kHello = 1,
  kWelcome,
  kRefuse,
  kCredit,
  kGoodbye,
  kFrame,
};

struct Envelope {
  MessageKind kind = MessageKind::kFrame;
  // Of a frame: the sender has used up half of its credit; return what there is at once.
  bool credit_urgent = false;
  uint64_t sender = 0;         // instance id of the sending transport
  uint64_t receiver = 0;       // instance id that is meant; any other refuses or drops
  uint64_t connection = 0;     // numbered by whoever opened it
  uint64_t number = 0;         // hello and refuse: keyed digest of the data; else see above
  uint32_t header_bytes = 0;   // of data; at most kFrameHeaderMax
  uint32_t payload_bytes = 0;  // of data; at most kFramePayloadMax
};

inline constexpr size_t kEnvelopeBytes = 56;
using EnvelopeBytes = std::array<std::byte, kEnvelopeBytes>;

EnvelopeBytes encode_envelope(const Envelope& envelope, uint64_t key);
// Errors: kInvalidFrame. `data_bytes` is how much came with it; what is announced must be exactly
// that.
Result<Envelope> decode_envelope(ByteSpan bytes, size_t data_bytes, uint64_t key);

// Where the payload starts in the data: 64-byte aligned, so that kernels may read it in place.
inline constexpr size_t kPayloadAlignment = 64;
inline size_t payload_offset(const Envelope& envelope) {
  const size_t header = envelope.header_bytes;
  if (envelope.payload_bytes == 0) return header;
  return (header + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}
inline size_t data_bytes(const Envelope& envelope) {
  return payload_offset(envelope) + envelope.payload_bytes;
}

// What address() of a transport hands out: where it listens and which life of it is meant, so that
// an address which outlived its process is refused by the next one on the same port.
struct Address {
  uint64_t instance = 0;
  std::vector<std::byte> worker;  // UCX's own, opaque; about 50 bytes over tcp
};
std::vector<std::byte> encode_address(const Address& address, uint64_t key);
// UCX may crash on a worker address that is none, so a keyed digest comes first.
// Errors: kInvalidArgument.
Result<Address> decode_address(ByteSpan bytes, uint64_t key);

// Of a refusal: longer reasons are cut.
inline constexpr size_t kReasonMax = 512;

}  // namespace troupe::ucx

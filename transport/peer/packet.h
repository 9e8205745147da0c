// Packets: how messages and beats are cut out of a stream of bytes nobody vouches for. Pure, no
// I/O.
//
// A packet is a header of 40 bytes and a payload of `length`. The header has a check of its own, so
// that a length is believed only from a header that is whole; each kind has a limit; and memory
// grows with the bytes that arrived, never with those announced. The digests find accidents (a
// stranger's protocol, a flipped bit), not forgers.
//
//   0  magic     u32  "TRPL"            16  number        u64  of a message on its link: 1, 2, …;
//   else 0 4  version   u16  kPacketVersion    24  acknowledged  u64  highest number received, in
//   messages and acknowledgements 6  kind      u16  PacketKind        32  digest        u64  of the
//   payload 8  length    u32  bytes of payload
//  12  check     u32  of the other 36 bytes                    All little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace troupe {

inline constexpr size_t kPacketHeaderBytes = 40;
inline constexpr uint16_t kPacketVersion = 1;

enum class PacketKind : uint16_t {
  kHello = 1,        // who I am; first on a message stream
  kReady = 2,        // I accepted your hello and have the beat stream; no payload
  kMessage = 3,      // a control message
  kAcknowledge = 4,  // no payload
  kGoodbye = 5,      // I close, and why
  kBeatHello = 6,    // which link this beat stream belongs to; first on it
  kBeat = 7,
};

// Bytes of payload, per kind.
size_t payload_max(PacketKind kind);

struct PacketHeader {
  PacketKind kind = PacketKind::kHello;
  uint64_t number = 0;
  uint64_t acknowledged = 0;
};

using PacketHeaderBytes = std::array<std::byte, kPacketHeaderBytes>;
uint64_t payload_digest(ByteSpan payload);
PacketHeaderBytes packet_header_bytes(const PacketHeader& header, size_t payload_bytes,
                                      uint64_t digest);
// Header and payload in one piece, for small packets.
std::vector<std::byte> whole_packet(const PacketHeader& header, ByteSpan payload);

struct Packet {
  PacketHeader header;
  ByteSpan payload;  // into the reader, until its next space()
};

class PacketReader {
 public:
  // Where the next bytes go: never empty. Ends the life of the last packet.
  std::span<std::byte> space();
  // So many bytes were written to the front of space().
  void filled(size_t bytes);
  // The next whole packet, nothing if more bytes are needed, or kInvalidFrame: then the stream is
  // lost. A packet that announces more than `payload_limit` (or than its kind may have) is refused
  // as soon as its header is there.
  Result<std::optional<Packet>> next(size_t payload_limit);
  size_t unread() const { return end_ - begin_; }
  size_t capacity() const { return buffer_.size(); }  // memory held, for tests

 private:
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;  // what arrived and was not taken yet
};

}  // namespace troupe

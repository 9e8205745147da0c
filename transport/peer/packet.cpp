#include "transport/peer/packet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/digest.h"
#include "transport/control.h"

namespace troupe {
namespace {

constexpr uint32_t kMagic = 0x4C505254;  // "TRPL"
constexpr size_t kBufferFirst = size_t{8} << 10;
constexpr size_t kBufferKept = size_t{256} << 10;  // an idle reader gives back more than this
constexpr size_t kCheckOffset = 12;

template <class T>
void put(PacketHeaderBytes& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}
template <class T>
T get(ByteSpan bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// Of the header with a check of zero.
uint32_t header_check(PacketHeaderBytes bytes) {
  put<uint32_t>(bytes, kCheckOffset, 0);
  return static_cast<uint32_t>(digest64(bytes, kMagic));
}

Error garbage(std::string what) {
  return Error{ErrorCode::kInvalidFrame, std::move(what)};
}

// A guess at who knocks, for the log of whoever has to find the misconfigured client.
Error wrong_magic(ByteSpan bytes) {
  const std::string_view text = as_text(bytes.first(4));
  for (const std::string_view method :
       {"GET ", "POST", "HEAD", "PUT ", "OPTI", "DELE", "CONN", "PRI "})
    if (text == method) return garbage("an HTTP request came where a peer link was expected");
  if (text.substr(0, 2) == "\x16\x03")
    return garbage("a TLS handshake came where a peer link was expected");
  return garbage(fmt::format("begins with {:#010x}, not with a packet's {:#010x}",
                             get<uint32_t>(bytes, 0), kMagic));
}

struct CheckedHeader {
  PacketHeader header;
  uint32_t length;
  uint64_t digest;
};

Result<CheckedHeader> read_header(ByteSpan bytes, size_t payload_limit) {
  PacketHeaderBytes copy;
  std::copy_n(bytes.begin(), copy.size(), copy.begin());
  if (get<uint32_t>(bytes, kCheckOffset) != header_check(copy))
    return garbage("a packet's header does not match its check");
  const auto version = get<uint16_t>(bytes, 4);
  if (version != kPacketVersion)
    return garbage(fmt::format("packet version {}, allowed {}", version, kPacketVersion));
  const auto kind = get<uint16_t>(bytes, 6);
  if (kind < static_cast<uint16_t>(PacketKind::kHello) ||
      kind > static_cast<uint16_t>(PacketKind::kBeat))
    return garbage(fmt::format("packet of unknown kind {}", kind));
  const auto length = get<uint32_t>(bytes, 8);
  const PacketHeader header{.kind = static_cast<PacketKind>(kind),
                            .number = get<uint64_t>(bytes, 16),
                            .acknowledged = get<uint64_t>(bytes, 24)};
  const size_t limit = std::min(payload_limit, payload_max(header.kind));
  if (length > limit)
    return garbage(
        fmt::format("packet of kind {} announces {} bytes, limit {} here", kind, length, limit));
  return CheckedHeader{header, length, get<uint64_t>(bytes, 32)};
}

}  // namespace

size_t payload_max(PacketKind kind) {
  switch (kind) {
    case PacketKind::kHello:
    case PacketKind::kBeatHello:
      return size_t{64} << 10;
    case PacketKind::kReady:
    case PacketKind::kAcknowledge:
      return 0;
    case PacketKind::kMessage:
      return kControlMessageMax;
    case PacketKind::kGoodbye:
      return size_t{8} << 10;
    case PacketKind::kBeat:
      return size_t{16} << 10;
  }
  return 0;
}

uint64_t payload_digest(ByteSpan payload) {
  return digest64(payload, kMagic);
}

PacketHeaderBytes packet_header_bytes(const PacketHeader& header, size_t payload_bytes,
                                      uint64_t digest) {
  TROUPE_CHECK(payload_bytes <= payload_max(header.kind), "what is sent was measured when encoded");
  PacketHeaderBytes bytes{};
  put<uint32_t>(bytes, 0, kMagic);
  put<uint16_t>(bytes, 4, kPacketVersion);
  put<uint16_t>(bytes, 6, static_cast<uint16_t>(header.kind));
  put<uint32_t>(bytes, 8, static_cast<uint32_t>(payload_bytes));
  put<uint64_t>(bytes, 16, header.number);
  put<uint64_t>(bytes, 24, header.acknowledged);
  put<uint64_t>(bytes, 32, digest);
  put<uint32_t>(bytes, kCheckOffset, header_check(bytes));
  return bytes;
}

std::vector<std::byte> whole_packet(const PacketHeader& header, ByteSpan payload) {
  const PacketHeaderBytes head =
      packet_header_bytes(header, payload.size(), payload_digest(payload));
  std::vector<std::byte> bytes(head.size() + payload.size());
  std::copy(head.begin(), head.end(), bytes.begin());
  std::copy(payload.begin(), payload.end(), bytes.begin() + head.size());
  return bytes;
}

std::span<std::byte> PacketReader::space() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kBufferKept) buffer_ = std::vector<std::byte>();
  }
  if (buffer_.empty()) buffer_.resize(kBufferFirst);
  // Moved to the front only when at least half the buffer is free there: each byte moves about
  // once.
  if (begin_ >= buffer_.size() / 2) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  return {buffer_.data() + end_, buffer_.size() - end_};
}

void PacketReader::filled(size_t bytes) {
  TROUPE_CHECK(bytes <= buffer_.size() - end_, "no more than space() offered");
  end_ += bytes;
}

Result<std::optional<Packet>> PacketReader::next(size_t payload_limit) {
  const ByteSpan bytes(buffer_.data() + begin_, end_ - begin_);
  if (bytes.size() < 4) return std::optional<Packet>();
  if (get<uint32_t>(bytes, 0) != kMagic) return wrong_magic(bytes);
  if (bytes.size() < kPacketHeaderBytes) return std::optional<Packet>();
  TROUPE_TRY(const CheckedHeader checked, read_header(bytes, payload_limit));
  if (bytes.size() - kPacketHeaderBytes < checked.length) return std::optional<Packet>();
  const ByteSpan payload = bytes.subspan(kPacketHeaderBytes, checked.length);
  if (payload_digest(payload) != checked.digest)
    return garbage("a packet's payload does not match its digest");
  begin_ += kPacketHeaderBytes + checked.length;
  return std::optional<Packet>(Packet{checked.header, payload});
}

}  // namespace troupe

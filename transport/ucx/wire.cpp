#include "transport/ucx/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/digest.h"
#include "transport/transport.h"

namespace troupe::ucx {
namespace {

constexpr uint32_t kMagic = 0x58554354;  // "TCUX"
constexpr uint16_t kVersion = 1;
constexpr uint64_t kAddressMagic = 0x3178637565707274;  // "trpeucx1"
constexpr uint8_t kFlagUrgent = 1;

// Little-endian machines only, as everything UCX runs on here.
struct RawEnvelope {
  uint32_t magic;
  uint16_t version;
  uint8_t kind;
  uint8_t flags;
  uint64_t sender, receiver, connection, number;
  uint32_t header_bytes, payload_bytes;
  uint64_t digest;
};
static_assert(sizeof(RawEnvelope) == kEnvelopeBytes);

struct RawAddress {
  uint64_t magic;
  uint64_t digest;    // keyed, over all that follows
  uint64_t instance;  // then the worker address
};

uint64_t digest_of(const RawEnvelope& raw, uint64_t key) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&raw);
  return digest64({bytes, offsetof(RawEnvelope, digest)}, key);
}

Error invalid(std::string what) {
  return Error{ErrorCode::kInvalidFrame, std::move(what)};
}

Result<void> check_sizes(const Envelope& envelope, size_t data) {
  const bool frame = envelope.kind == MessageKind::kFrame;
  const bool told = envelope.kind == MessageKind::kHello || envelope.kind == MessageKind::kRefuse;
  const size_t header_max = frame ? kFrameHeaderMax : told ? kAddressMax : 0;
  const size_t payload_max = frame ? kFramePayloadMax : 0;
  if (envelope.header_bytes > header_max)
    return invalid(fmt::format("message kind {} announces {} header bytes, limit {}",
                               static_cast<int>(envelope.kind), envelope.header_bytes, header_max));
  if (envelope.payload_bytes > payload_max)
    return invalid(fmt::format("message kind {} announces {} payload bytes, limit {}",
                               static_cast<int>(envelope.kind), envelope.payload_bytes,
                               payload_max));
  if (data_bytes(envelope) != data)
    return invalid(
        fmt::format("message announces {} bytes, {} arrived", data_bytes(envelope), data));
  return {};
}

}  // namespace

EnvelopeBytes encode_envelope(const Envelope& envelope, uint64_t key) {
  RawEnvelope raw{kMagic,
                  kVersion,
                  static_cast<uint8_t>(envelope.kind),
                  envelope.credit_urgent ? kFlagUrgent : uint8_t{0},
                  envelope.sender,
                  envelope.receiver,
                  envelope.connection,
                  envelope.number,
                  envelope.header_bytes,
                  envelope.payload_bytes,
                  0};
  raw.digest = digest_of(raw, key);
  EnvelopeBytes bytes;
  std::memcpy(bytes.data(), &raw, sizeof raw);
  return bytes;
}

Result<Envelope> decode_envelope(ByteSpan bytes, size_t data, uint64_t key) {
  RawEnvelope raw;
  if (bytes.size() != sizeof raw)
    return invalid(fmt::format("envelope of {} bytes, expected {}", bytes.size(), sizeof raw));
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (raw.magic != kMagic || raw.version != kVersion)
    return invalid(fmt::format("envelope magic {:08x} version {}, expected {:08x} version {}",
                               raw.magic, raw.version, kMagic, kVersion));
  if (raw.digest != digest_of(raw, key))
    return invalid("digest of the envelope does not match (damaged, or another cluster's key)");
  if (raw.kind < static_cast<uint8_t>(MessageKind::kHello) ||
      raw.kind > static_cast<uint8_t>(MessageKind::kFrame))
    return invalid(fmt::format("message kind {}, known 1 to 6", raw.kind));
  Envelope envelope{static_cast<MessageKind>(raw.kind),
                    (raw.flags & kFlagUrgent) != 0,
                    raw.sender,
                    raw.receiver,
                    raw.connection,
                    raw.number,
                    raw.header_bytes,
                    raw.payload_bytes};
  TROUPE_TRY_VOID(check_sizes(envelope, data));
  return envelope;
}

std::vector<std::byte> encode_address(const Address& address, uint64_t key) {
  std::vector<std::byte> bytes(sizeof(RawAddress) + address.worker.size());
  std::copy(address.worker.begin(), address.worker.end(), bytes.begin() + sizeof(RawAddress));
  RawAddress raw{kAddressMagic, 0, address.instance};
  std::memcpy(bytes.data(), &raw, sizeof raw);
  raw.digest = digest64(ByteSpan(bytes).subspan(offsetof(RawAddress, instance)), key);
  std::memcpy(bytes.data(), &raw, sizeof raw);
  return bytes;
}

Result<Address> decode_address(ByteSpan bytes, uint64_t key) {
  RawAddress raw;
  if (bytes.size() <= sizeof raw || bytes.size() > kAddressMax)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("transport address of {} bytes, expected {} to {}", bytes.size(),
                             sizeof raw + 1, kAddressMax)};
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (raw.magic != kAddressMagic)
    return Error{ErrorCode::kInvalidArgument, "not an address of a UCX transport"};
  if (raw.digest != digest64(bytes.subspan(offsetof(RawAddress, instance)), key))
    return Error{ErrorCode::kInvalidArgument,
                 "digest of the address does not match (damaged, or another cluster's key)"};
  if (raw.instance == 0)
    return Error{ErrorCode::kInvalidArgument, "transport address without an instance id"};
  return Address{raw.instance, {bytes.begin() + sizeof raw, bytes.end()}};
}

}  // namespace troupe::ucx

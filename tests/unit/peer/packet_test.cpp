#include "transport/peer/packet.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "base/prng.h"
#include "transport/control.h"

namespace troupe {
namespace {

std::vector<std::byte> bytes_of(size_t count, uint64_t seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(philox_uniform(seed, i, 0) * 256.0F);
  return bytes;
}

void feed(PacketReader& reader, ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = reader.space();
    const size_t count = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), count, space.begin());
    reader.filled(count);
    bytes = bytes.subspan(count);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(peer_packet)

BOOST_AUTO_TEST_CASE(packets_come_out_as_they_went_in_however_the_stream_is_cut) {
  for (const size_t cut :
       {size_t{1}, size_t{7}, size_t{39}, size_t{40}, size_t{41}, size_t{100'000}}) {
    std::vector<std::byte> stream;
    for (uint64_t i = 1; i <= 20; ++i) {
      const std::vector<std::byte> packet =
          whole_packet({.kind = PacketKind::kMessage, .number = i, .acknowledged = i * 3},
                       bytes_of(i * 531 % 4096, i));
      stream.insert(stream.end(), packet.begin(), packet.end());
    }
    PacketReader reader;
    uint64_t seen = 0;
    for (size_t at = 0; at < stream.size(); at += cut) {
      const ByteSpan part = ByteSpan(stream).subspan(at, std::min(cut, stream.size() - at));
      feed(reader, part);
      while (true) {
        const auto packet = reader.next(kControlMessageMax);
        BOOST_REQUIRE(packet.ok());
        if (!packet.value()) break;
        ++seen;
        BOOST_TEST(packet.value()->header.number == seen);
        BOOST_TEST(packet.value()->header.acknowledged == seen * 3);
        const std::vector<std::byte> expected = bytes_of(seen * 531 % 4096, seen);
        BOOST_TEST(std::ranges::equal(packet.value()->payload, expected));
      }
    }
    BOOST_TEST(seen == 20U);
    BOOST_TEST(reader.unread() == 0U);
  }
}

BOOST_AUTO_TEST_CASE(memory_grows_with_what_arrived_not_with_what_was_announced) {
  const PacketHeaderBytes head =
      packet_header_bytes({.kind = PacketKind::kMessage, .number = 1}, kControlMessageMax, 0);
  PacketReader reader;
  feed(reader, head);
  feed(reader, bytes_of(100, 1));
  BOOST_REQUIRE(reader.next(kControlMessageMax).ok());
  reader.space();
  BOOST_TEST(reader.capacity() <= 16U << 10);
}

BOOST_AUTO_TEST_CASE(memory_of_a_long_packet_is_given_back) {
  const std::vector<std::byte> payload(kControlMessageMax);
  PacketReader reader;
  feed(reader, whole_packet({.kind = PacketKind::kMessage, .number = 1}, payload));
  const auto packet = reader.next(kControlMessageMax);
  BOOST_REQUIRE(packet.ok());
  BOOST_REQUIRE(packet.value().has_value());
  reader.space();
  BOOST_TEST(reader.capacity() <= 256U << 10);
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_is_found) {
  const std::vector<std::byte> whole =
      whole_packet({.kind = PacketKind::kMessage, .number = 5, .acknowledged = 4}, bytes_of(64, 3));
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<std::byte> flipped = whole;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    PacketReader reader;
    feed(reader, flipped);
    const auto packet = reader.next(kControlMessageMax);
    BOOST_REQUIRE_MESSAGE(!packet.ok(), "bit " << bit);
    BOOST_TEST((packet.error().code == ErrorCode::kInvalidFrame));
  }
}

BOOST_AUTO_TEST_CASE(strangers_are_told_apart_after_four_bytes) {
  const std::pair<const char*, const char*> cases[] = {{"GET ", "HTTP"},
                                                       {"POST", "HTTP"},
                                                       {"\x16\x03\x01\x02", "TLS"},
                                                       {"\x7f"
                                                        "ELF",
                                                        "0x464c457f"}};
  for (const auto& [bytes, expected] : cases) {
    PacketReader reader;
    feed(reader, as_byte_span(std::string_view(bytes, 4)));
    const auto packet = reader.next(kControlMessageMax);
    BOOST_REQUIRE(!packet.ok());
    BOOST_TEST(packet.error().message.find(expected) != std::string::npos, packet.error().message);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe

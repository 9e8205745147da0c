// What travels in UCX's messages, and the parts around it that need no network.
#include "transport/ucx/wire.h"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>

#include "base/digest.h"
#include "transport/ucx/environment.h"
#include "transport/ucx/incoming.h"
#include "transport/ucx/memory.h"

namespace troupe::ucx {
namespace {

constexpr uint64_t kKey = 5;

Envelope frame_envelope() {
  Envelope envelope;
  envelope.kind = MessageKind::kFrame;
  envelope.credit_urgent = true;
  envelope.sender = 1;
  envelope.receiver = 2;
  envelope.connection = 3;
  envelope.number = 4;
  envelope.header_bytes = 100;
  envelope.payload_bytes = 50;
  return envelope;
}

BOOST_AUTO_TEST_SUITE(ucx_wire)

BOOST_AUTO_TEST_CASE(an_envelope_carries_every_field) {
  const auto got = decode_envelope(encode_envelope(frame_envelope(), kKey), 128 + 50, kKey);
  BOOST_REQUIRE(got.ok());
  BOOST_TEST((got.value().kind == MessageKind::kFrame));
  BOOST_TEST(got.value().credit_urgent);
  BOOST_TEST(got.value().sender == 1U);
  BOOST_TEST(got.value().receiver == 2U);
  BOOST_TEST(got.value().connection == 3U);
  BOOST_TEST(got.value().number == 4U);
  BOOST_TEST(payload_offset(got.value()) == 128U);
}

BOOST_AUTO_TEST_CASE(an_envelope_with_any_flipped_bit_is_refused) {
  const EnvelopeBytes bytes = encode_envelope(frame_envelope(), kKey);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    EnvelopeBytes damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    BOOST_REQUIRE(!decode_envelope(damaged, 178, kKey).ok());
  }
}

BOOST_AUTO_TEST_CASE(an_envelope_must_fit_its_data_its_key_and_the_limits) {
  const EnvelopeBytes bytes = encode_envelope(frame_envelope(), kKey);
  BOOST_TEST(!decode_envelope(bytes, 177, kKey).ok());
  BOOST_TEST(!decode_envelope(bytes, 178, kKey + 1).ok());
  BOOST_TEST(!decode_envelope(ByteSpan(bytes).first(55), 178, kKey).ok());
  Envelope large = frame_envelope();
  large.payload_bytes = kFramePayloadMax + 1;
  BOOST_TEST(!decode_envelope(encode_envelope(large, kKey), data_bytes(large), kKey).ok());
  large = frame_envelope();
  large.header_bytes = kFrameHeaderMax + 1;
  BOOST_TEST(!decode_envelope(encode_envelope(large, kKey), data_bytes(large), kKey).ok());
  large = frame_envelope();
  large.kind = MessageKind::kCredit;
  BOOST_TEST(!decode_envelope(encode_envelope(large, kKey), data_bytes(large), kKey).ok());
  large.kind = static_cast<MessageKind>(99);
  BOOST_TEST(!decode_envelope(encode_envelope(large, kKey), data_bytes(large), kKey).ok());
}

BOOST_AUTO_TEST_CASE(an_address_survives_the_trip_and_nothing_else_does) {
  const Address address{42, std::vector<std::byte>(50, std::byte{7})};
  const auto bytes = encode_address(address, kKey);
  const auto got = decode_address(bytes, kKey);
  BOOST_REQUIRE(got.ok());
  BOOST_TEST(got.value().instance == 42U);
  BOOST_TEST((got.value().worker == address.worker));
  BOOST_TEST(!decode_address(bytes, kKey + 1).ok());
  for (size_t size = 0; size < bytes.size(); ++size)
    BOOST_TEST(!decode_address(ByteSpan(bytes).first(size), kKey).ok());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    BOOST_REQUIRE(!decode_address(damaged, kKey).ok());
  }
  BOOST_TEST(!decode_address(encode_address({0, address.worker}, kKey), kKey).ok());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(ucx_parts)

Arrived numbered(uint64_t number) {
  Arrived arrived;
  arrived.envelope.number = number;
  return arrived;
}

BOOST_AUTO_TEST_CASE(early_frames_wait_for_their_turn) {
  Reordering frames;
  BOOST_TEST(frames.place(numbered(2)));
  BOOST_TEST(!frames.take().has_value());
  BOOST_TEST(frames.place(numbered(1)));
  BOOST_TEST(frames.take()->envelope.number == 1U);
  BOOST_TEST(frames.take()->envelope.number == 2U);
  BOOST_TEST(!frames.take().has_value());
}

BOOST_AUTO_TEST_CASE(repeats_and_numbers_beyond_the_window_are_refused) {
  Reordering frames;
  BOOST_TEST(!frames.place(numbered(0)));
  BOOST_TEST(frames.place(numbered(1)));
  BOOST_TEST(!frames.place(numbered(1)));
  BOOST_TEST(frames.take().has_value());
  BOOST_TEST(!frames.place(numbered(1)));
  BOOST_TEST(frames.place(numbered(1 + kWindow)));
  BOOST_TEST(!frames.place(numbered(2 + kWindow)));
  BOOST_TEST(!frames.place(numbered(~uint64_t{0})));
}

class CountedCredit final : public CreditReturn {
 public:
  int told = 0;

 private:
  void tell() override { ++told; }
};

BOOST_AUTO_TEST_CASE(credits_return_in_batches_unless_the_sender_is_short) {
  CountedCredit credits;
  for (int i = 0; i < 63; ++i) credits.release();
  BOOST_TEST(credits.told == 0);
  credits.release();
  BOOST_TEST(credits.told == 1);
  credits.release();
  BOOST_TEST(credits.told == 1);  // told once is enough
  BOOST_TEST(credits.to_return().value() == 65U);
  BOOST_TEST(!credits.to_return().has_value());
  credits.hurry();
  BOOST_TEST(credits.told == 1);  // nothing to return yet
  credits.release();
  BOOST_TEST(credits.told == 2);
  BOOST_TEST(credits.to_return().value() == 66U);
  credits.release();
  BOOST_TEST(credits.told == 2);
  credits.hurry();
  BOOST_TEST(credits.told == 3);
}

BOOST_AUTO_TEST_CASE(a_released_buffer_is_used_again_and_the_rest_is_freed) {
  const auto pool = BufferPool::create(1 << 20);
  std::byte* first = nullptr;
  {
    const auto buffer = pool->take(100000);
    first = buffer.get();
    BOOST_TEST(reinterpret_cast<uintptr_t>(first) % 64 == 0U);
    std::memset(first, 1, 100000);
  }
  BOOST_TEST(pool->kept_bytes() > 0U);
  const auto again = pool->take(100000);
  BOOST_TEST(again.get() == first);
  BOOST_TEST(pool->kept_bytes() == 0U);
  pool->take(2 << 20);  // beyond what is kept
  BOOST_TEST(pool->kept_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(a_buffer_outlives_its_pool) {
  std::shared_ptr<std::byte> buffer = BufferPool::create(1 << 20)->take(5000);
  std::memset(buffer.get(), 1, 5000);
}

BOOST_AUTO_TEST_CASE(the_environment_is_checked_setting_by_setting) {
  const UcxNetwork network{.interface = "lo", .port_first = 31800, .port_last = 31809};
  BOOST_TEST(!ucx_environment({.interface = "lo;rm"}).ok());
  BOOST_TEST(!ucx_environment({.interface = ""}).ok());
  BOOST_TEST(!ucx_environment({.port_first = 5, .port_last = 4}).ok());
  BOOST_TEST(!ucx_environment({.port_first = 0, .port_last = 4}).ok());
  BOOST_REQUIRE(set_ucx_environment(network).ok());
  BOOST_TEST(check_ucx_environment(network).ok());
  BOOST_TEST(std::string(std::getenv("UCX_TCP_PORT_RANGE")) == "31800-31809");
  unsetenv("UCX_ZCOPY_THRESH");
  const auto missing = check_ucx_environment(network);
  BOOST_REQUIRE(!missing.ok());
  BOOST_TEST(missing.error().message.find("UCX_ZCOPY_THRESH=inf") != std::string::npos);
  BOOST_REQUIRE(set_ucx_environment({}).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::ucx

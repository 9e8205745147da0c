// Bytes that no honest peer sends: the connection that brought them ends, with a reason, and a
// healthy link beside it does not notice.
#include <cstring>

#include "base/digest.h"
#include "tests/unit/peer/peer_world.h"

namespace troupe::test {
namespace {

using Bytes = std::vector<std::byte>;

// The magic number; also the key of header checks and payload digests.
constexpr uint32_t kMagic = 0x4C505254;

Bytes text(std::string_view bytes) {
  const ByteSpan span = as_byte_span(bytes);
  return {span.begin(), span.end()};
}

Bytes packet(PacketKind kind, ByteSpan payload, uint64_t number = 0, uint64_t acknowledged = 0) {
  return whole_packet({.kind = kind, .number = number, .acknowledged = acknowledged}, payload);
}

// A packet with one header field replaced and the check made good again.
template <class T>
Bytes patched(Bytes bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const uint32_t none = 0;
  std::memcpy(bytes.data() + 12, &none, sizeof(none));
  const auto check =
      static_cast<uint32_t>(digest64(ByteSpan(bytes).first(kPacketHeaderBytes), kMagic));
  std::memcpy(bytes.data() + 12, &check, sizeof(check));
  return bytes;
}

Bytes hello(const PeerHello& peer) {
  return packet(PacketKind::kHello, hello_bytes(peer).view());
}
Bytes sound_hello() {
  return hello(raw_hello("raw", 5));
}

// A sound hello's payload with `from` replaced by `to` of the same length.
Bytes hello_with(std::string_view from, std::string_view to) {
  const SharedBuffer sound = hello_bytes(raw_hello("rawnode", 5));
  std::string payload(as_text(sound.view()));
  const size_t at = payload.find(from);
  BOOST_REQUIRE(at != std::string::npos);
  payload.replace(at, to.size(), to);
  return packet(PacketKind::kHello, as_byte_span(payload));
}

Bytes joined(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Bytes flipped(Bytes bytes, size_t at) {
  bytes[at] ^= std::byte{1};
  return bytes;
}

Bytes message(uint64_t number, uint64_t acknowledged = 0) {
  return packet(PacketKind::kMessage, encode_control(numbered(1)).value().view(), number,
                acknowledged);
}

struct Case {
  const char* what;
  Bytes bytes;
};

std::vector<Case> bad_openings() {
  const uint32_t too_long = kControlMessageMax + 8;
  return {{"HTTP", text("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
          {"TLS", text("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
          {"SSH", text("SSH-2.0-OpenSSH_9.2\r\n")},
          {"zeroes", Bytes(100)},
          {"ones", Bytes(100, std::byte{0xFF})},
          {"other version", patched(sound_hello(), 4, uint16_t{2})},
          {"kind 0", patched(sound_hello(), 6, uint16_t{0})},
          {"kind 8", patched(sound_hello(), 6, uint16_t{8})},
          {"kind 65535", patched(sound_hello(), 6, uint16_t{0xFFFF})},
          {"hello over its limit", patched(sound_hello(), 8, uint32_t{(64U << 10) + 8})},
          {"4 GiB hello", patched(sound_hello(), 8, uint32_t{0xFFFFFFFF})},
          {"message over its limit", patched(message(1), 8, too_long)},
          {"long message before hello", patched(message(1), 8, uint32_t{(64U << 10) + 8})},
          {"ready with a payload", patched(packet(PacketKind::kReady, {}), 8, uint32_t{8})},
          {"bad check", flipped(sound_hello(), 12)},
          {"bad digest", flipped(sound_hello(), 32)},
          {"flipped payload", flipped(sound_hello(), 60)},
          {"message before hello", message(1)},
          {"acknowledgement before hello", packet(PacketKind::kAcknowledge, {}, 0, 1)},
          {"ready before hello", packet(PacketKind::kReady, {})},
          {"beat before hello", packet(PacketKind::kBeat, encode_beat({1, {}}).value().view())},
          {"goodbye before hello", packet(PacketKind::kGoodbye, encode_goodbye({}).value().view())},
          {"malformed goodbye", packet(PacketKind::kGoodbye, Bytes(16, std::byte{0xEE}))},
          {"empty hello", packet(PacketKind::kHello, {})},
          {"hello of noise", packet(PacketKind::kHello, Bytes(64, std::byte{0x5A}))},
          {"hello of zeroes", packet(PacketKind::kHello, Bytes(64))},
          {"hello of 2^32 segments", packet(PacketKind::kHello, Bytes(8, std::byte{0xFF}))},
          {"hello with a bad node id", hello_with("rawnode", "raw\nnod")},
          {"hello with broken UTF-8", hello_with("test-cluster", "test-\xFF\xFEuster")},
          {"hello of another cluster", hello_with("test-cluster", "rest-cluster")},
          {"beat stream of no link",
           packet(PacketKind::kBeatHello, encode_beat_hello(1).value().view())},
          {"beat hello with token 0",
           packet(PacketKind::kBeatHello, encode_beat_hello(0).value().view())},
          {"beat hello of noise", packet(PacketKind::kBeatHello, Bytes(24, std::byte{0x77}))},
          {"beats before the link",
           joined(packet(PacketKind::kBeatHello, encode_beat_hello(1).value().view()),
                  packet(PacketKind::kBeat, encode_beat({1, {}}).value().view()))},
          {"two hellos", joined(sound_hello(), sound_hello())},
          {"message without beats", joined(sound_hello(), message(1))},
          {"ready twice", joined(sound_hello(), joined(packet(PacketKind::kReady, {}),
                                                       packet(PacketKind::kReady, {})))}};
}

std::vector<Case> bad_continuations() {
  Bytes bad_body = packet(PacketKind::kMessage, Bytes(64, std::byte{0x13}), 1);
  return {{"garbage", text("what is this, forty bytes of plain English text?")},
          {"a gap", message(2)},
          {"a far number", message(~uint64_t{0})},
          {"an acknowledgement of nothing sent", packet(PacketKind::kAcknowledge, {}, 0, 1)},
          {"the same on a message", message(1, 99)},
          {"a malformed message", bad_body},
          {"an empty message", packet(PacketKind::kMessage, {}, 1)},
          {"a second hello", sound_hello()},
          {"a second ready", packet(PacketKind::kReady, {})},
          {"a beat", packet(PacketKind::kBeat, encode_beat({1, {}}).value().view())},
          {"a beat hello", packet(PacketKind::kBeatHello, encode_beat_hello(1).value().view())},
          {"a flipped bit", flipped(message(1), 41)}};
}

// A head and a worker whose link must not notice.
struct Healthy {
  Node head{listening(options_of("head", 11))};
  Node worker{options_of("worker", 22)};
  LinkId at_head, at_worker;
  Healthy() {
    BOOST_REQUIRE(worker.links->dial(head.address()).ok());
    at_head = head.events->await_up();
    at_worker = worker.events->await_up();
  }
  void check() { check_works(head, at_head, worker, at_worker); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(peer_hostile)

BOOST_AUTO_TEST_CASE(every_bad_opening_is_refused_and_disturbs_nobody) {
  Healthy healthy;
  size_t refused = 0;
  for (const Case& bad : bad_openings()) {
    BOOST_TEST_CONTEXT(bad.what) {
      RawStream stream = RawStream::connect(healthy.head.port());
      stream.send(bad.bytes);
      const Recorder::Refusal refusal = healthy.head.events->await_refusal(++refused);
      BOOST_TEST(refusal.who.substr(0, 10) == "127.0.0.1:");
      BOOST_TEST(!refusal.why.message.empty());
      BOOST_TEST((refusal.why.code != ErrorCode::kDeadlineExceeded), refusal.why.message);
      stream.await_end();
      healthy.check();
    }
  }
  const Recorder::Told told = healthy.head.events->told();
  BOOST_TEST(told.refusals.size() == refused);
  BOOST_TEST(told.ups.size() == 1U);
  BOOST_TEST(told.downs.empty());
}

BOOST_AUTO_TEST_CASE(every_bad_packet_on_a_link_ends_that_link_only) {
  Healthy healthy;
  size_t downs = 0;
  for (const Case& bad : bad_continuations()) {
    BOOST_TEST_CONTEXT(bad.what) {
      RawLink raw = raw_link(healthy.head, raw_hello("raw", 5));
      healthy.head.events->await_up(downs + 2);
      raw.messages.send(bad.bytes);
      const Recorder::Down down = healthy.head.events->await_down(++downs);
      BOOST_TEST((down.link == healthy.head.events->told().ups[downs].link));
      BOOST_TEST((down.why.code == ErrorCode::kInvalidFrame), down.why.message);
      // The peer hears why before the end.
      raw.messages.hear(PacketKind::kGoodbye);
      raw.messages.await_end();
      healthy.check();
    }
  }
}

BOOST_AUTO_TEST_CASE(every_bad_packet_on_a_beat_stream_ends_that_link_only) {
  Healthy healthy;
  size_t downs = 0;
  const Case cases[] = {
      {"a message", message(1)},
      {"a malformed beat", packet(PacketKind::kBeat, Bytes(32, std::byte{0x31}))},
      {"noise", text("neither a beat nor anything else at all, really")},
      {"an oversized beat", patched(message(1), 6, static_cast<uint16_t>(PacketKind::kBeat))}};
  for (const Case& bad : cases) {
    BOOST_TEST_CONTEXT(bad.what) {
      RawLink raw = raw_link(healthy.head, raw_hello("raw", 5));
      healthy.head.events->await_up(downs + 2);
      Bytes bytes = bad.bytes;
      if (std::string_view(bad.what) == "an oversized beat")
        bytes = patched(bytes, 8, uint32_t{16392});
      raw.beats.send(bytes);
      const Recorder::Down down = healthy.head.events->await_down(++downs);
      BOOST_TEST((down.why.code == ErrorCode::kInvalidFrame), down.why.message);
      healthy.check();
    }
  }
}

BOOST_AUTO_TEST_CASE(a_repeated_message_is_dropped) {
  Healthy healthy;
  RawLink raw = raw_link(healthy.head, raw_hello("raw", 5));
  const LinkId link = healthy.head.events->await_up(2);
  for (const uint64_t number : {1U, 1U, 2U, 1U}) raw.messages.send(message(number));
  raw.messages.send(packet(PacketKind::kMessage, encode_control(numbered(99)).value().view(), 3));
  healthy.head.events->await("the last message", [&](const Recorder::Told& told) {
    const auto& messages = told.messages;
    return !messages.empty() && messages.back().second.call == 99;
  });
  size_t from_raw = 0;
  const Recorder::Told all = healthy.head.events->told();
  for (const auto& [from, got] : all.messages) from_raw += from == link;
  BOOST_TEST(from_raw == 3U);
}

BOOST_AUTO_TEST_CASE(two_hundred_connections_of_random_garbage_disturb_nobody) {
  const uint64_t seed = 20240611;
  BOOST_TEST_MESSAGE("seed " << seed);
  Healthy healthy;
  for (uint64_t i = 0; i < 200; ++i) {
    const auto draw = [&](uint32_t which) { return philox_uniform(seed, i, which); };
    Bytes bytes = sound_hello();
    if (i % 2 == 0) {  // noise of up to 2000 bytes
      bytes.resize(1 + static_cast<size_t>(draw(0) * 2000.0F));
      for (size_t at = 0; at < bytes.size(); ++at)
        bytes[at] = static_cast<std::byte>(philox_uniform(seed + i, at, 1) * 256.0F);
    } else {  // a hello with one byte changed, perhaps cut
      const auto at = static_cast<size_t>(draw(2) * static_cast<float>(bytes.size()));
      bytes[at] ^= static_cast<std::byte>(1 + static_cast<int>(draw(3) * 254.0F));
      if (i % 4 == 1)
        bytes.resize(1 + static_cast<size_t>(draw(4) * static_cast<float>(bytes.size() - 1)));
    }
    RawStream stream = RawStream::connect(healthy.head.port());
    stream.send(bytes);
    stream.close();
    if (i % 20 == 0) healthy.check();
  }
  healthy.head.events->await_refusal(200);
  healthy.check();
  BOOST_TEST(healthy.head.events->told().ups.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

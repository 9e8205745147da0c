// Mutated control messages, hellos, beats, goodbyes and packets. Whatever the bytes, decoding
// returns: a value within the limits, which can be encoded again, or an error. Run it under the
// address sanitizer.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>
#include <random>

#include "transport/control.h"
#include "transport/peer/link_messages.h"
#include "transport/peer/packet.h"

namespace troupe {
namespace {

using Bytes = std::vector<std::byte>;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  // A few changes of the kinds that upset parsers: bits, bytes, words set to extremes or moved,
  // cuts, repeats.
  Bytes mutate(Bytes bytes) {
    for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) change(bytes);
    return bytes;
  }
  Bytes noise(size_t size_max) {
    Bytes bytes(below(size_max + 1));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }

 private:
  void change(Bytes& bytes) {
    const size_t at = below(bytes.size());
    switch (below(7)) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1U << below(8));
        return;
      case 1:
        bytes[at] = static_cast<std::byte>(random_());
        return;
      case 2:
        return set_word(bytes, at / 4 * 4, kExtremes[below(std::size(kExtremes))]);
      case 3:
        return copy_word(bytes, at / 8 * 8, below(bytes.size()) / 8 * 8);
      case 4:
        bytes.resize(at / 8 * 8);
        return;
      case 5:
        bytes.resize(bytes.size() + 8 * (1 + below(8)));
        return;
      default:
        bytes.insert(bytes.end(), bytes.begin(),
                     bytes.begin() + static_cast<ptrdiff_t>(at / 8 * 8));
    }
  }
  static void set_word(Bytes& bytes, size_t at, uint32_t value) {
    if (at + 4 <= bytes.size()) std::memcpy(bytes.data() + at, &value, 4);
  }
  static void copy_word(Bytes& bytes, size_t to, size_t from) {
    if (std::max(to, from) + 8 <= bytes.size())
      std::memmove(bytes.data() + to, bytes.data() + from, 8);
  }

  static constexpr uint32_t kExtremes[] = {0,          1,          0x7FFFFFFF, 0x80000000,
                                           0xFFFFFFFF, 0xFFFFFFFE, 0x20000000, 0x1FFFFFFF,
                                           0x0000FFFF, 0xFFFC0000};
  std::mt19937_64 random_;
};

Bytes copy(const Result<SharedBuffer>& encoded) {
  BOOST_REQUIRE(encoded.ok());
  const ByteSpan view = encoded.value().view();
  return {view.begin(), view.end()};
}

std::vector<Bytes> control_corpus() {
  View view{.deployment = "d",
            .number = {1},
            .batcher = {2},
            .batcher_address = Bytes(40),
            .seats = {},
            .standbys = {}};
  for (uint32_t i = 0; i < 4; ++i)
    view.seats.push_back({"node", {1}, {2}, {i, i + 1}, Bytes(24), 9});
  view.standbys.push_back({2, view.seats[1]});
  std::vector<Bytes> corpus;
  for (const ControlBody& body : std::initializer_list<ControlBody>{
           NodeInventory{1, 2, 3, 4, "avx2", "0.1", 5},
           AssignStage{{"d", "/m", "id", 0, 2, {0, 3}, 4, 1, 8, "auto", 9, {10}}},
           StageReady{"d", 1, {0, 3}, {5}, Bytes(32), 1, 2, 3},
           StageLost{"d", 1, {5}, "cause", true}, InstallView{view},
           ViewInstalled{"d", {3}, {{1, {{{5}, 6, 7, 8}}}}}, StopStage{"d", 1},
           StageFigures{"d", 1, {2}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, {15}, 16},
           InjectFault{"d", 1, "throw"}, Evicted{"why"}, Leaving{"why"},
           ControlError{ErrorCode::kFenced, "why"}, Acknowledged{}})
    corpus.push_back(copy(encode_control({.call = 7, .answer = true, .body = body})));
  return corpus;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fuzz_control)

BOOST_AUTO_TEST_CASE(control_messages_decode_to_something_sound_or_are_refused) {
  const uint64_t seed = setting("TROUPE_FUZZ_SEED", 1),
                 rounds = setting("TROUPE_FUZZ_ROUNDS", 40'000);
  BOOST_TEST_MESSAGE("seed " << seed << ", rounds " << rounds);
  Mutator mutator(seed);
  const std::vector<Bytes> corpus = control_corpus();
  size_t accepted = 0, refused = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const Bytes bytes = mutator.mutate(corpus[mutator.below(corpus.size())]);
    const Result<ControlMessage> decoded = decode_control(bytes);
    if (decoded.ok()) {
      ++accepted;
      BOOST_REQUIRE_MESSAGE(encode_control(decoded.value()).ok(),
                            "seed " << seed << " round " << round);
    } else {
      ++refused;
      BOOST_REQUIRE((decoded.error().code == ErrorCode::kInvalidFrame));
    }
  }
  // Both happen often, or the mutations test nothing.
  BOOST_TEST(accepted > rounds / 20);
  BOOST_TEST(refused > rounds / 20);
}

BOOST_AUTO_TEST_CASE(link_messages_decode_to_something_sound_or_are_refused) {
  const uint64_t seed = setting("TROUPE_FUZZ_SEED", 1),
                 rounds = setting("TROUPE_FUZZ_ROUNDS", 40'000);
  Mutator mutator(seed + 1);
  const PeerHello peer{
      .cluster_id = "cluster", .node = "node-1", .incarnation = {1}, .listen = "127.0.0.1:1"};
  const Bytes hello = copy(encode_hello({peer, 5}));
  const Bytes beat = copy(encode_beat({9, {{1, 2, 3}, {4, 5, 6}}}));
  const Bytes goodbye = copy(encode_goodbye({ErrorCode::kConflict, "why"}));
  const Bytes beat_hello = copy(encode_beat_hello(6));
  for (uint64_t round = 0; round < rounds; ++round) {
    const Result<LinkHello> decoded = decode_hello(mutator.mutate(hello));
    if (decoded.ok())
      BOOST_REQUIRE_MESSAGE(encode_hello(decoded.value()).ok(),
                            "seed " << seed << " round " << round);
    const Result<Beat> heard = decode_beat(mutator.mutate(beat));
    if (heard.ok()) BOOST_REQUIRE(heard.value().progress.size() <= kBeatProgressMax);
    const Result<Goodbye> why = decode_goodbye(mutator.mutate(goodbye));
    if (why.ok()) BOOST_REQUIRE(why.value().why.message.size() <= kControlTextMax);
    const Result<uint64_t> token = decode_beat_hello(mutator.mutate(beat_hello));
    if (token.ok()) BOOST_REQUIRE(token.value() != 0);
  }
}

BOOST_AUTO_TEST_CASE(noise_and_mutated_packets_never_upset_the_reader) {
  const uint64_t seed = setting("TROUPE_FUZZ_SEED", 1),
                 rounds = setting("TROUPE_FUZZ_ROUNDS", 40'000);
  Mutator mutator(seed + 2);
  const Bytes message = control_corpus()[4];
  Bytes stream;
  for (uint64_t number = 1; number <= 3; ++number) {
    const Bytes packet = whole_packet({.kind = PacketKind::kMessage, .number = number}, message);
    stream.insert(stream.end(), packet.begin(), packet.end());
  }
  for (uint64_t round = 0; round < rounds; ++round) {
    const Bytes bytes = round % 8 == 0 ? mutator.noise(300) : mutator.mutate(stream);
    PacketReader reader;
    ByteSpan rest(bytes);
    bool sound = true;
    while (sound && !rest.empty()) {
      const std::span<std::byte> space = reader.space();
      const size_t count = std::min({space.size(), rest.size(), 1 + mutator.below(600)});
      std::copy_n(rest.begin(), count, space.begin());
      reader.filled(count);
      rest = rest.subspan(count);
      while (true) {
        const Result<std::optional<Packet>> packet = reader.next(kControlMessageMax);
        sound = packet.ok();
        if (!sound || !packet.value()) break;
        BOOST_REQUIRE(packet.value()->payload.size() <= payload_max(packet.value()->header.kind));
      }
    }
    BOOST_REQUIRE(reader.capacity() <= 64U << 10);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe

// Decoding frame headers under a digest that is right: what a peer with the key could do to us.
// Valid headers are mutated word by word, byte by byte, cut and spliced, and signed again; every
// outcome but a crash, a hang or a sanitizer's word is fine, and what decodes must encode again.
//   fuzz_frame [SECONDS [SEED]]
// Built with -fsanitize=fuzzer and TROUPE_LIBFUZZER it is a libFuzzer target instead.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/digest.h"
#include "base/prng.h"
#include "base/time.h"
#include "transport/frame.h"

namespace {

using namespace troupe;

constexpr uint64_t kKey = 99;
constexpr size_t kPrefixBytes = 16;

// Gives any bytes a prefix that decoding believes.
SharedBuffer signed_header(ByteSpan message) {
  SharedBuffer header = SharedBuffer::allocate(kPrefixBytes + message.size());
  const uint32_t magic = 0x31465254, length = static_cast<uint32_t>(message.size());
  const uint64_t digest = digest64(message, kKey);
  std::memcpy(header.mutable_data(), &magic, 4);
  std::memcpy(header.mutable_data() + 4, &length, 4);
  std::memcpy(header.mutable_data() + 8, &digest, 8);
  if (!message.empty())
    std::memcpy(header.mutable_data() + kPrefixBytes, message.data(), message.size());
  return header;
}

// True if it decoded.
bool decode_once(ByteSpan message, ByteSpan payload) {
  const SharedBuffer header = signed_header(message);
  const auto decoded = decode_frame_header(header.view(), payload, kKey);
  if (!decoded.ok()) return false;
  TROUPE_CHECK(check_frame(decoded.value(), payload.size()).ok(), "what decodes keeps the rules");
  TROUPE_CHECK(encode_frame_header(decoded.value(), payload, kKey).ok(), "what decodes encodes");
  return true;
}

#ifndef TROUPE_LIBFUZZER

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  uint32_t next() {
    return philox4x32_10(
        {static_cast<uint32_t>(count_), static_cast<uint32_t>(count_++ >> 32), 0, 0},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)})[0];
  }
  size_t below(size_t count) { return next() % count; }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

std::vector<std::byte> valid_message(Draws& draws, SharedBuffer& payload) {
  FrameHeader header;
  header.kind = static_cast<FrameKind>(draws.below(4));
  header.view = {draws.next()};
  const size_t segments = draws.below(5);
  uint32_t rows = 0;
  for (size_t i = 0; i < segments; ++i) {
    FrameSegment segment;
    segment.sequence = {draws.next()};
    segment.rows = static_cast<uint32_t>(draws.below(6));
    segment.blocks.resize(draws.below(4), draws.next());
    if (header.kind == FrameKind::kTokens) segment.tokens.resize(segment.rows, draws.next());
    if (header.kind == FrameKind::kSampled) segment.tokens.resize(1, draws.next());
    rows += segment.rows;
    header.segments.push_back(segment);
  }
  header.released.resize(draws.below(3), SequenceId{draws.next()});
  if (header.kind == FrameKind::kRefused) header.refusal = "no";
  if (header.kind == FrameKind::kActivations) header.hidden = 4;
  payload = SharedBuffer::allocate(size_t{rows} * header.hidden * sizeof(float));
  if (!payload.empty()) std::memset(payload.mutable_data(), 1, payload.size());
  const auto encoded = encode_frame_header(header, payload.view(), kKey);
  TROUPE_CHECK(encoded.ok(), "the seed corpus is valid");
  const ByteSpan message = encoded.value().view().subspan(kPrefixBytes);
  TROUPE_CHECK(decode_once(message, payload.view()), "the seed corpus decodes");
  return {message.begin(), message.end()};
}

// Pointers live in words: most mutations hit one.
void mutate(Draws& draws, std::vector<std::byte>& message) {
  constexpr uint64_t kWords[] = {0,
                                 ~uint64_t{0},
                                 1,
                                 0x7fffffff00000001,
                                 0xfffffffc00000005,
                                 0xfffffffffffffffd,
                                 0x80000000000000ff,
                                 0x2000000100000007};
  for (size_t i = 0, count = 1 + draws.below(4); i < count && message.size() >= 8; ++i) {
    const size_t word = draws.below(message.size() / 8) * 8, byte = draws.below(message.size());
    uint64_t value = 0;
    switch (draws.below(6)) {
      case 0:
        message[byte] ^= static_cast<std::byte>(1U << draws.below(8));
        break;
      case 1:
        message[byte] = static_cast<std::byte>(draws.next());
        break;
      case 2:
        value = kWords[draws.below(std::size(kWords))];
        std::memcpy(&message[word], &value, 8);
        break;
      case 3: {  // another word of the same message: pointers that overlap
        const size_t from = draws.below(message.size() / 8) * 8;
        std::memmove(&message[word], &message[from], 8);
        break;
      }
      case 4: {  // a list or struct pointer that was made up
        value = (uint64_t{draws.next()} << 32) | (draws.below(64) << 2) | draws.below(4);
        std::memcpy(&message[word], &value, 8);
        break;
      }
      default:
        message.resize(draws.below(message.size()) / 8 * 8);
    }
  }
}

#endif

}  // namespace

#ifdef TROUPE_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  decode_once({reinterpret_cast<const std::byte*>(data), size}, {});
  return 0;
}
#else
int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 3;
  const uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
  std::printf("fuzz_frame: seed %llu, %.1f s\n", static_cast<unsigned long long>(seed), seconds);
  Draws draws(seed);
  uint64_t tried = 0, decoded = 0;
  const Instant start = steady_now();
  while (to_seconds(steady_now() - start) < seconds) {
    for (int i = 0; i < 100; ++i, ++tried) {
      SharedBuffer payload;
      std::vector<std::byte> message = valid_message(draws, payload);
      mutate(draws, message);
      decoded += decode_once(message, payload.view());
    }
  }
  std::printf("fuzz_frame: %llu inputs, %llu still decoded\n",
              static_cast<unsigned long long>(tried), static_cast<unsigned long long>(decoded));
  // Both outcomes must occur, or the fuzzer tests nothing.
  return decoded > 0 && decoded < tried ? 0 : 1;
}
#endif

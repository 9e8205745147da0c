// Frame headers: what goes in comes out, equal ones have equal bytes, and nothing else is believed.
#include "transport/frame.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/digest.h"
#include "tests/unit/transport/frames.h"

namespace troupe {
namespace {

constexpr uint64_t kKey = 0x1234;

SharedBuffer encode(const Frame& frame) {
  auto encoded = encode_frame_header(frame.header, frame.payload.view(), kKey);
  BOOST_REQUIRE_MESSAGE(encoded.ok(), "encoding a valid frame");
  return std::move(encoded).value();
}

bool decodes(const SharedBuffer& header, ByteSpan payload) {
  return decode_frame_header(header.view(), payload, kKey).ok();
}

// What a peer that holds the key could send: the message changed, the digest right.
void sign(SharedBuffer& header) {
  const uint64_t digest = digest64(header.view().subspan(16), kKey);
  std::memcpy(header.mutable_data() + 8, &digest, sizeof digest);
}

SharedBuffer copy_of(const SharedBuffer& buffer, size_t size) {
  SharedBuffer copy = SharedBuffer::allocate(size);
  std::memset(copy.mutable_data(), 0, size);
  std::memcpy(copy.mutable_data(), buffer.data(), std::min(size, buffer.size()));
  return copy;
}

void refused(const Frame& frame, const std::string& part) {
  const auto result = encode_frame_header(frame.header, frame.payload.view(), kKey);
  BOOST_REQUIRE_MESSAGE(!result.ok(), "expected a refusal about " << part);
  BOOST_TEST((result.error().code == ErrorCode::kInvalidFrame));
  BOOST_TEST(result.error().message.find(part) != std::string::npos, result.error().message);
}

BOOST_AUTO_TEST_SUITE(frame)

BOOST_AUTO_TEST_CASE(carries_every_field) {
  Frame sent = test::activations(5, 256);
  sent.header.released = {{11}, {12}};
  sent.header.sent_unix_us = -17;
  sent.header.segments[0].logits_digest = 99;
  const auto result = decode_frame_header(encode(sent).view(), sent.payload.view(), kKey);
  BOOST_REQUIRE(result.ok());
  const FrameHeader& got = result.value();
  BOOST_TEST((got.kind == FrameKind::kActivations));
  BOOST_TEST(got.view.value == 1U);
  BOOST_TEST(got.sender.value == 2U);
  BOOST_TEST(got.receiver.value == 3U);
  BOOST_TEST(got.edge_sequence == 5U);
  BOOST_TEST(got.micro_batch.value == 5U);
  BOOST_TEST(got.hidden == 64U);
  BOOST_TEST(got.sent_unix_us == -17);
  BOOST_TEST((got.released == sent.header.released));
  BOOST_REQUIRE(got.segments.size() == 1U);
  const FrameSegment &a = got.segments[0], &b = sent.header.segments[0];
  BOOST_TEST((a.sequence == b.sequence && a.position == b.position && a.rows == b.rows));
  BOOST_TEST((a.blocks == b.blocks && a.sample == b.sample && a.sampling == b.sampling));
  BOOST_TEST(a.logits_digest == 99U);
}

BOOST_AUTO_TEST_CASE(carries_a_refusal) {
  Frame sent;
  sent.header.kind = FrameKind::kRefused;
  sent.header.refusal = "no room";
  sent.header.refusal_code = ErrorCode::kResourceExhausted;
  sent.header.refusing_stage = 2;
  const auto got = decode_frame_header(encode(sent).view(), {}, kKey);
  BOOST_REQUIRE(got.ok());
  BOOST_TEST(got.value().refusal == "no room");
  BOOST_TEST((got.value().refusal_code == ErrorCode::kResourceExhausted));
  BOOST_TEST(got.value().refusing_stage == 2U);
}

BOOST_AUTO_TEST_CASE(encodes_equal_headers_to_equal_bytes) {
  const SharedBuffer a = encode(test::tokens(3, 100)), b = encode(test::tokens(3, 100));
  BOOST_REQUIRE(a.size() == b.size());
  BOOST_TEST(std::memcmp(a.data(), b.data(), a.size()) == 0);
}

BOOST_AUTO_TEST_CASE(notices_every_flipped_bit_of_header_and_payload) {
  const Frame frame = test::activations(1, 64);
  const SharedBuffer header = encode(frame);
  for (size_t bit = 0; bit < 8 * header.size(); ++bit) {
    SharedBuffer damaged = copy_of(header, header.size());
    damaged.mutable_data()[bit / 8] ^= std::byte{1} << (bit % 8);
    BOOST_REQUIRE_MESSAGE(!decodes(damaged, frame.payload.view()), "header bit " << bit);
  }
  for (size_t bit = 0; bit < 8 * frame.payload.size(); ++bit) {
    SharedBuffer damaged = copy_of(frame.payload, frame.payload.size());
    damaged.mutable_data()[bit / 8] ^= std::byte{1} << (bit % 8);
    BOOST_REQUIRE_MESSAGE(!decodes(header, damaged.view()), "payload bit " << bit);
  }
  BOOST_TEST(decodes(header, frame.payload.view()));
}

BOOST_AUTO_TEST_CASE(refuses_another_key_and_every_truncation) {
  const Frame frame = test::activations(1, 64);
  const SharedBuffer header = encode(frame);
  BOOST_TEST(!decode_frame_header(header.view(), frame.payload.view(), kKey + 1).ok());
  for (size_t size = 0; size < header.size(); ++size)
    BOOST_REQUIRE(!decode_frame_header(header.view().first(size), frame.payload.view(), kKey).ok());
  BOOST_TEST(!decodes(header, frame.payload.view().first(60)));
}

BOOST_AUTO_TEST_CASE(reads_a_header_that_is_not_aligned) {
  const Frame frame = test::activations(1, 64);
  const SharedBuffer header = encode(frame);
  SharedBuffer shifted = SharedBuffer::allocate(header.size() + 3);
  std::memcpy(shifted.mutable_data() + 3, header.data(), header.size());
  BOOST_TEST(decode_frame_header(shifted.view().subspan(3), frame.payload.view(), kKey).ok());
}

// Segment counts that overflow or allocate in the stream readers; here the table must say exactly
// one.
BOOST_AUTO_TEST_CASE(refuses_hostile_segment_tables_under_a_valid_digest) {
  const Frame frame = test::tokens(1, 4);
  for (const uint32_t count : {1U, 2U, 511U, 0x7fffffffU, 0xfffffffeU, 0xffffffffU}) {
    SharedBuffer header = copy_of(encode(frame), encode(frame).size());
    std::memcpy(header.mutable_data() + 16, &count, sizeof count);
    sign(header);
    BOOST_TEST(!decodes(header, {}));
  }
  for (const uint32_t words : {0U, 1U, 0x20000000U, 0xffffffffU}) {
    SharedBuffer header = copy_of(encode(frame), encode(frame).size());
    std::memcpy(header.mutable_data() + 20, &words, sizeof words);
    sign(header);
    BOOST_TEST(!decodes(header, {}));
  }
}

BOOST_AUTO_TEST_CASE(survives_every_overwritten_word_under_a_valid_digest) {
  const Frame frame = test::tokens(1, 4);
  const SharedBuffer header = encode(frame);
  for (size_t word = 3; word < header.size() / 8; ++word)
    for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x7fffffff00000001},
                                 uint64_t{0xfffffffc00000005}, uint64_t{0x00000002}}) {
      SharedBuffer damaged = copy_of(header, header.size());
      std::memcpy(damaged.mutable_data() + 8 * word, &value, sizeof value);
      sign(damaged);
      [[maybe_unused]] const bool any_outcome_but_a_crash = decodes(damaged, {});
    }
  // A root pointer to nothing in particular is an error, not a default header.
  SharedBuffer damaged = copy_of(header, header.size());
  const uint64_t outside = 0x0000'0001'7fff'fffc;
  std::memcpy(damaged.mutable_data() + 24, &outside, sizeof outside);
  sign(damaged);
  BOOST_TEST(!decodes(damaged, {}));
}

BOOST_AUTO_TEST_CASE(refuses_to_encode_what_breaks_a_limit) {
  Frame frame = test::activations(1, 64);
  frame.header.segments.resize(kFrameSegmentsMax + 1);
  refused(frame, "segments");
  frame = test::activations(1, 64);
  frame.header.segments[0].blocks.resize(kSegmentBlocksMax + 1);
  refused(frame, "blocks");
  frame = test::tokens(1, kSegmentTokensMax);
  frame.header.segments[0].tokens.push_back(0);
  frame.header.segments[0].rows = kSegmentTokensMax + 1;
  refused(frame, "rows");
  frame = test::tokens(1, 3);
  frame.header.segments[0].rows = 4;
  refused(frame, "4 rows with 3 tokens");
  frame = test::activations(1, 64);
  frame.header.hidden = 15;
  refused(frame, "payload of 64 bytes");
  frame = test::activations(1, 64);
  frame.header.hidden = 0xffffffff;
  refused(frame, "columns");
  frame = test::tokens(1, 3);
  frame.payload = SharedBuffer::allocate(4);
  refused(frame, "payload of 4 bytes");
  frame = test::tokens(1, 3);
  frame.header.refusal.assign(5000, 'x');
  refused(frame, "refusal");
  frame = test::tokens(1, 3);
  frame.header.kind = static_cast<FrameKind>(10);
  refused(frame, "kind 10");
}

BOOST_AUTO_TEST_CASE(refuses_absurd_sampling_parameters) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float temperature : {-1.0F, 101.0F, kNaN, INFINITY}) {
    Frame frame = test::tokens(1, 1);
    frame.header.segments[0].sampling.temperature = temperature;
    refused(frame, "temperature");
  }
  for (const float top_p : {0.0F, -0.5F, 1.5F, kNaN}) {
    Frame frame = test::tokens(1, 1);
    frame.header.segments[0].sampling.top_p = top_p;
    refused(frame, "top_p");
  }
}

BOOST_AUTO_TEST_CASE(encodes_the_largest_frame_of_many_segments) {
  Frame frame = test::tokens(1, 1);
  frame.header.segments.resize(kFrameSegmentsMax, frame.header.segments[0]);
  BOOST_TEST(decodes(encode(frame), {}));
  frame = test::tokens(1, kSegmentTokensMax);
  frame.header.segments[0].blocks.resize(kSegmentBlocksMax);
  BOOST_TEST(decodes(encode(frame), {}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

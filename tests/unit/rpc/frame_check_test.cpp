// The guard's eyes: every cut of a good stream passes, every lie in a segment table is seen in
// time.
#include "actors/rpc/frame_check.h"

#include <capnp/message.h>
#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>

#include <boost/test/unit_test.hpp>

namespace troupe::rpc {
namespace {

constexpr FrameLimits kLimits{.words_max = 1024, .questions_max = 3, .bytes_max = 0};

std::string table(std::initializer_list<uint32_t> words) {
  std::string bytes;
  for (const uint32_t word : words) bytes.append(reinterpret_cast<const char*>(&word), 4);
  return bytes;
}

template <class Fill>
std::string message(Fill fill) {
  capnp::MallocMessageBuilder builder;
  fill(builder.initRoot<capnp::rpc::Message>());
  const auto words = capnp::messageToFlatArray(builder);
  return {reinterpret_cast<const char*>(words.begin()), words.asBytes().size()};
}

std::string bootstrap() {
  return message([](capnp::rpc::Message::Builder root) { root.initBootstrap(); });
}
std::string finish() {
  return message([](capnp::rpc::Message::Builder root) { root.initFinish(); });
}

BOOST_AUTO_TEST_SUITE(frame_check)

BOOST_AUTO_TEST_CASE(accepts_messages_however_they_are_cut) {
  const std::string stream = bootstrap() + finish() + table({2, 1, 0, 2}) + std::string(24, '\0');
  for (size_t size = 1; size <= stream.size(); ++size) {
    FrameCheck check(kLimits);
    for (size_t at = 0; at < stream.size(); at += size)
      BOOST_TEST(check.feed(as_byte_span(std::string_view(stream).substr(at, size))).ok());
    BOOST_TEST(!check.inside_frame());
  }
}

BOOST_AUTO_TEST_CASE(refuses_the_segment_count_that_overflows_the_heap) {
  FrameCheck check(kLimits);
  const auto verdict = check.feed(as_byte_span(table({0xFFFFFFFF, 0})));
  BOOST_TEST((verdict.error().code == ErrorCode::kInvalidFrame));
  BOOST_TEST(verdict.error().message == "a message of 4294967296 segments, limit 64");
}

BOOST_AUTO_TEST_CASE(refuses_what_is_over_a_limit_and_accepts_what_is_at_it) {
  BOOST_TEST(FrameCheck(kLimits).feed(as_byte_span(table({0, 1024}))).ok());
  BOOST_TEST(!FrameCheck(kLimits).feed(as_byte_span(table({0, 1025}))).ok());
  // Sizes whose 32-bit sum wraps around to 2.
  BOOST_TEST(!FrameCheck(kLimits).feed(as_byte_span(table({1, 0xFFFFFFFF, 3, 0}))).ok());
  BOOST_TEST(!FrameCheck(kLimits).feed(as_byte_span(table({0, 0}))).ok());
  BOOST_TEST(!FrameCheck(kLimits).feed(as_byte_span(table({64}))).ok());
}

BOOST_AUTO_TEST_CASE(counts_questions_until_they_are_finished) {
  FrameCheck check(kLimits);
  for (int i = 0; i < 3; ++i) BOOST_TEST(check.feed(as_byte_span(bootstrap())).ok());
  BOOST_TEST(check.open_questions() == 3U);
  BOOST_TEST(check.feed(as_byte_span(finish())).ok());
  BOOST_TEST(check.feed(as_byte_span(bootstrap())).ok());
  BOOST_TEST(!check.feed(as_byte_span(bootstrap())).ok());
}

BOOST_AUTO_TEST_CASE(counts_messages_of_unusual_layout_as_questions) {
  // The root is a far pointer: the kind of message cannot be seen here.
  FrameCheck check(kLimits);
  const uint64_t far_pointer = 2;
  const std::string unusual =
      table({0, 1}) + std::string(reinterpret_cast<const char*>(&far_pointer), 8);
  BOOST_TEST(check.feed(as_byte_span(unusual)).ok());
  BOOST_TEST(check.open_questions() == 1U);
}

BOOST_AUTO_TEST_CASE(limits_all_bytes_until_the_limit_is_lifted) {
  FrameCheck check({.words_max = 8, .questions_max = 100, .bytes_max = 100});
  const std::string small = table({0, 4}) + std::string(32, '\0');
  BOOST_TEST(check.feed(as_byte_span(small)).ok());
  BOOST_TEST(check.feed(as_byte_span(small)).ok());
  FrameCheck lifted = check;
  BOOST_TEST(!check.feed(as_byte_span(small)).ok());
  lifted.set_limits({.words_max = 8, .questions_max = 100, .bytes_max = 0});
  for (int i = 0; i < 50; ++i) BOOST_TEST(lifted.feed(as_byte_span(small)).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::rpc

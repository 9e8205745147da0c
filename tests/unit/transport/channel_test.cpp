// The channel over a wire that loses, repeats and reorders: everything pushed is delivered exactly
// once, in order.
#include "transport/channel.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "base/prng.h"

namespace troupe {
namespace {

SharedBuffer bytes_of(uint64_t value) {
  SharedBuffer buffer = SharedBuffer::allocate(sizeof value);
  buffer.as_mutable<uint64_t>()[0] = value;
  return buffer;
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  bool happens(double odds) {
    return philox_uniform(seed_, count_++, 0) < static_cast<float>(odds);
  }
  size_t below(size_t count) {
    const auto drawn =
        static_cast<size_t>(philox_uniform(seed_, count_++, 1) * static_cast<float>(count));
    return std::min(drawn, count - 1);
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

// A wire: takes what is sent, gives back any of it, some twice, some never.
template <class T>
class LossyWire {
 public:
  LossyWire(Draws& draws, double lose, double repeat)
      : draws_(draws), lose_(lose), repeat_(repeat) {}
  void send(const T& item) {
    if (draws_.happens(lose_)) return;
    flying_.push_back(item);
    if (draws_.happens(repeat_)) flying_.push_back(item);
  }
  bool empty() const { return flying_.empty(); }
  T receive_any() {
    const size_t index = draws_.below(flying_.size());
    T item = flying_[index];
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(index));
    return item;
  }

 private:
  Draws& draws_;
  double lose_, repeat_;
  std::vector<T> flying_;
};

void run_lossy(uint64_t seed, uint64_t messages) {
  Draws draws(seed);
  ChannelSender sender({.messages_max = 8, .bytes_max = 1024});
  ChannelReceiver receiver(3);
  LossyWire<ChannelMessage> there(draws, 0.2, 0.2);
  LossyWire<uint64_t> back(draws, 0.2, 0.2);
  std::vector<uint64_t> delivered;
  uint64_t pushed = 0, steps = 0;
  while (delivered.size() < messages) {
    BOOST_REQUIRE_MESSAGE(++steps < 100000, "seed " << seed << " makes no progress");
    const size_t choice = draws.below(4);
    if (choice == 0 && pushed < messages) {
      auto numbered = sender.push(bytes_of(pushed));
      if (numbered.ok()) {
        ++pushed;
        there.send(numbered.value());
      } else {
        BOOST_TEST(sender.unacknowledged().size() == 8U);
      }
    } else if (choice == 1 && !there.empty()) {
      const ChannelMessage message = there.receive_any();
      if (receiver.accept(message.number) == ChannelVerdict::kDeliver)
        delivered.push_back(message.bytes.as<uint64_t>()[0]);
      if (receiver.acknowledgement_due()) {
        back.send(receiver.acknowledgement());
        receiver.acknowledgement_sent();
      }
    } else if (choice == 2 && !back.empty()) {
      BOOST_REQUIRE(sender.acknowledge(back.receive_any()).ok());
    } else if (choice == 3 && draws.happens(0.1)) {  // the sender's timeout
      for (const ChannelMessage& message : sender.unacknowledged()) there.send(message);
    }
  }
  for (uint64_t i = 0; i < messages; ++i)
    BOOST_REQUIRE_MESSAGE(delivered[i] == i, "seed " << seed << ", delivery " << i);
}

BOOST_AUTO_TEST_SUITE(channel)

BOOST_AUTO_TEST_CASE(delivers_each_message_once_and_in_order_over_a_lossy_wire) {
  for (uint64_t seed = 1; seed <= 200; ++seed) run_lossy(seed, 60);
}

BOOST_AUTO_TEST_CASE(refuses_more_than_the_window_and_takes_nothing) {
  ChannelSender sender({.messages_max = 2, .bytes_max = 1024});
  BOOST_TEST(sender.push(bytes_of(1)).ok());
  BOOST_TEST(sender.push(bytes_of(2)).ok());
  const auto third = sender.push(bytes_of(3));
  BOOST_REQUIRE(!third.ok());
  BOOST_TEST((third.error().code == ErrorCode::kResourceExhausted));
  BOOST_TEST(sender.last_number() == 2U);
  BOOST_REQUIRE(sender.acknowledge(1).ok());
  BOOST_TEST(sender.push(bytes_of(3)).value().number == 3U);
}

BOOST_AUTO_TEST_CASE(bounds_the_bytes_it_keeps) {
  ChannelSender sender({.messages_max = 100, .bytes_max = 20});
  BOOST_TEST(sender.push(bytes_of(1)).ok());
  BOOST_TEST(sender.push(bytes_of(2)).ok());
  BOOST_TEST(!sender.push(bytes_of(3)).ok());
  BOOST_REQUIRE(sender.acknowledge(2).ok());
  BOOST_TEST(sender.unacknowledged_bytes() == 0U);
  BOOST_TEST(sender.push(bytes_of(3)).ok());
}

BOOST_AUTO_TEST_CASE(refuses_an_acknowledgement_of_what_was_never_sent) {
  ChannelSender sender;
  BOOST_TEST(sender.push(bytes_of(1)).ok());
  const auto result = sender.acknowledge(2);
  BOOST_REQUIRE(!result.ok());
  BOOST_TEST((result.error().code == ErrorCode::kInvalidFrame));
  BOOST_TEST(sender.unacknowledged().size() == 1U);
}

BOOST_AUTO_TEST_CASE(ignores_an_older_acknowledgement) {
  ChannelSender sender;
  for (uint64_t i = 0; i < 3; ++i) BOOST_REQUIRE(sender.push(bytes_of(i)).ok());
  BOOST_REQUIRE(sender.acknowledge(3).ok());
  BOOST_REQUIRE(sender.acknowledge(1).ok());
  BOOST_TEST(sender.acknowledged() == 3U);
}

BOOST_AUTO_TEST_CASE(tells_repeats_and_gaps_apart_and_owes_an_answer_for_both) {
  ChannelReceiver receiver(100);
  BOOST_TEST((receiver.accept(2) == ChannelVerdict::kGap));
  BOOST_TEST(receiver.acknowledgement_due());
  receiver.acknowledgement_sent();
  BOOST_TEST((receiver.accept(1) == ChannelVerdict::kDeliver));
  BOOST_TEST(!receiver.acknowledgement_due());
  BOOST_TEST(receiver.acknowledgement_owed());
  BOOST_TEST((receiver.accept(1) == ChannelVerdict::kRepeat));
  BOOST_TEST(receiver.acknowledgement_due());
  BOOST_TEST(receiver.acknowledgement() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(pending_calls)

constexpr Instant kStart{};

BOOST_AUTO_TEST_CASE(gives_each_call_its_own_number_and_completes_it_once) {
  PendingCalls<std::string> calls;
  const uint64_t a = calls.open("a", kStart + 1s).value();
  const uint64_t b = calls.open("b", kStart + 1s).value();
  BOOST_TEST(a != b);
  BOOST_TEST(calls.answer(b).value() == "b");
  BOOST_TEST(!calls.answer(b).has_value());
  BOOST_TEST(!calls.answer(77).has_value());
  BOOST_TEST(calls.size() == 1U);
}

BOOST_AUTO_TEST_CASE(expires_what_is_due_earliest_first) {
  PendingCalls<std::string> calls;
  BOOST_REQUIRE(calls.open("late", kStart + 3s).ok());
  BOOST_REQUIRE(calls.open("second", kStart + 2s).ok());
  BOOST_REQUIRE(calls.open("first", kStart + 1s).ok());
  BOOST_TEST((calls.next_deadline() == kStart + 1s));
  BOOST_TEST(calls.expire(kStart + 500ms).empty());
  const std::vector<std::string> expired = calls.expire(kStart + 2s);
  BOOST_REQUIRE(expired.size() == 2U);
  BOOST_TEST(expired[0] == "first");
  BOOST_TEST(expired[1] == "second");
  BOOST_TEST((calls.next_deadline() == kStart + 3s));
}

BOOST_AUTO_TEST_CASE(fails_everything_when_the_link_is_lost) {
  PendingCalls<std::string> calls;
  BOOST_REQUIRE(calls.open("a", kStart + 2s).ok());
  const uint64_t b = calls.open("b", kStart + 1s).value();
  const std::vector<std::string> failed = calls.fail_all();
  BOOST_REQUIRE(failed.size() == 2U);
  BOOST_TEST(failed[0] == "a");
  BOOST_TEST(!calls.answer(b).has_value());
  BOOST_TEST(!calls.next_deadline().has_value());
  BOOST_TEST(calls.open("c", kStart + 1s).value() > b);
}

BOOST_AUTO_TEST_CASE(refuses_more_than_its_limit) {
  PendingCalls<std::string> calls(1);
  BOOST_REQUIRE(calls.open("a", kStart + 1s).ok());
  const auto second = calls.open("b", kStart + 1s);
  BOOST_REQUIRE(!second.ok());
  BOOST_TEST((second.error().code == ErrorCode::kResourceExhausted));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

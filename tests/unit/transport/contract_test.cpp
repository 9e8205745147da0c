// The contract of transport.h, the same for every transport: order, credits, large frames, loss.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <thread>

#include "tests/unit/transport/events.h"
#include "tests/unit/transport/frames.h"
#include "tests/unit/transport/ucx_support.h"
#include "transport/loopback.h"

namespace troupe {
namespace {

using test::RecordedEvents;

// Credits that a sender waits for are counted before send(): an on_credit in between is not missed.
struct LoopbackNetwork {
  LoopbackHub hub{LoopbackPump::kThread};
  std::unique_ptr<Transport> attach(TransportEvents& events) { return hub.attach(events); }
};
struct UcxNetworkOfTests {
  std::unique_ptr<Transport> attach(TransportEvents& events) { return test::ucx_transport(events); }
};
using Networks = boost::mpl::list<LoopbackNetwork, UcxNetworkOfTests>;

template <class Network>
struct Pair {
  Network network;
  RecordedEvents events_a, events_b;
  std::unique_ptr<Transport> a = network.attach(events_a);
  std::unique_ptr<Transport> b = network.attach(events_b);
  ConnectionId to_b = a->connect(b->address()).value();

  SendOutcome send(uint64_t number, size_t bytes) {
    return test::send_all(*a, events_a, to_b, test::activations(number, bytes));
  }
  bool received(size_t frames) {
    return events_b.wait_for([&] { return events_b.frames_seen >= frames; });
  }
  // Leases go before the transports they came from.
  ~Pair() {
    events_a.release_frames();
    events_b.release_frames();
  }
};

BOOST_AUTO_TEST_SUITE(transport_contract)

BOOST_AUTO_TEST_CASE_TEMPLATE(frames_arrive_in_order_and_whole, Network, Networks) {
  Pair<Network> pair;
  // Small ones behind large ones: over UCX these travel by different protocols and overtake each
  // other.
  constexpr size_t kSizes[] = {4, 64 << 10, 256, 1 << 20, 16, 9000, 300 << 10, 4};
  constexpr uint64_t kFrames = 200;
  for (uint64_t i = 1; i <= kFrames; ++i)
    BOOST_REQUIRE((pair.send(i, kSizes[i % std::size(kSizes)]) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(kFrames));
  for (uint64_t i = 1; i <= kFrames; ++i) {
    const Frame& frame = pair.events_b.frames[i - 1];
    BOOST_REQUIRE(frame.payload.size() == kSizes[i % std::size(kSizes)]);
    BOOST_REQUIRE(test::is_activations(frame, i));
    BOOST_REQUIRE(reinterpret_cast<uintptr_t>(frame.payload.data()) % 64 == 0);
  }
  BOOST_TEST(pair.events_b.garbage.empty());
  BOOST_TEST(pair.a->figures().frames_sent == kFrames);
  BOOST_TEST(pair.b->figures().frames_received == kFrames);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(large_frames_arrive_whole, Network, Networks) {
  Pair<Network> pair;
  BOOST_REQUIRE((pair.send(1, size_t{1} << 20) == SendOutcome::kAccepted));
  BOOST_REQUIRE((pair.send(2, size_t{64} << 20) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(2));
  BOOST_TEST(test::is_activations(pair.events_b.frames[0], 1));
  BOOST_TEST(test::is_activations(pair.events_b.frames[1], 2));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_frame_without_a_payload_arrives, Network, Networks) {
  Pair<Network> pair;
  Frame frame = test::tokens(4, 1000);
  BOOST_REQUIRE((pair.a->send(pair.to_b, frame) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(1));
  BOOST_TEST(pair.events_b.frames[0].header.segments[0].tokens.size() == 1000U);
  BOOST_TEST(pair.events_b.frames[0].payload.empty());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_sender_stops_at_the_window_until_frames_are_released, Network,
                              Networks) {
  Pair<Network> pair;
  for (uint64_t i = 1; i <= kWindow; ++i) {
    Frame frame = test::activations(i, 64);
    BOOST_REQUIRE((pair.a->send(pair.to_b, frame) == SendOutcome::kAccepted));
  }
  BOOST_REQUIRE(pair.received(kWindow));
  Frame next = test::activations(kWindow + 1, 64);
  BOOST_REQUIRE((pair.a->send(pair.to_b, next) == SendOutcome::kNoCredit));
  BOOST_TEST(next.payload.size() == 64U);  // not taken
  // A copy of the payload alone keeps the frame held.
  SharedBuffer copy = pair.events_b.frames[0].payload;
  {
    const std::lock_guard lock(pair.events_b.mutex);
    pair.events_b.frames[0] = {};
  }
  BOOST_TEST((pair.a->send(pair.to_b, next) == SendOutcome::kNoCredit));
  copy = {};
  BOOST_REQUIRE(pair.events_a.wait_for([&] { return !pair.events_a.credits.empty(); }));
  BOOST_TEST((pair.a->send(pair.to_b, next) == SendOutcome::kAccepted));
  BOOST_TEST(pair.received(kWindow + 1));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(credit_comes_back_for_as_long_as_frames_are_released, Network,
                              Networks) {
  Pair<Network> pair;
  pair.events_b.only_count_frames();
  constexpr uint64_t kFrames = 20 * kWindow;
  for (uint64_t i = 1; i <= kFrames; ++i)
    BOOST_REQUIRE((pair.send(i, 64) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(kFrames));
  BOOST_TEST(pair.events_b.in_order);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(both_directions_and_several_threads_work_at_once, Network, Networks) {
  Pair<Network> pair;
  const ConnectionId to_a = pair.b->connect(pair.a->address()).value();
  const ConnectionId second_to_b = pair.a->connect(pair.b->address()).value();
  constexpr uint64_t kFrames = 100;
  const auto sender = [&](Transport& transport, RecordedEvents& events, ConnectionId connection) {
    for (uint64_t i = 1; i <= kFrames; ++i)
      test::send_all(transport, events, connection, test::activations(i, 20000));
  };
  std::thread one([&] { sender(*pair.a, pair.events_a, pair.to_b); });
  std::thread two([&] { sender(*pair.a, pair.events_a, second_to_b); });
  std::thread three([&] { sender(*pair.b, pair.events_b, to_a); });
  one.join();
  two.join();
  three.join();
  BOOST_REQUIRE(pair.received(2 * kFrames));
  BOOST_REQUIRE(pair.events_a.wait_for([&] { return pair.events_a.frames_seen >= kFrames; }));
  for (uint64_t i = 1; i <= kFrames; ++i)
    BOOST_REQUIRE(test::is_activations(pair.events_a.frames[i - 1], i));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_loss_of_a_destroyed_peer_is_reported_once, Network, Networks) {
  Pair<Network> pair;
  BOOST_REQUIRE((pair.send(1, 1000) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(1));
  pair.events_b.release_frames();
  pair.b.reset();
  BOOST_REQUIRE(pair.events_a.wait_for([&] { return !pair.events_a.lost.empty(); }));
  BOOST_TEST((pair.events_a.lost[0].first == pair.to_b));
  BOOST_TEST((pair.events_a.lost[0].second.code == ErrorCode::kUnavailable));
  Frame frame = test::activations(2, 64);
  BOOST_TEST((pair.a->send(pair.to_b, frame) == SendOutcome::kClosed));
  BOOST_TEST(frame.payload.size() == 64U);
  pair.a.reset();  // no event after it
  BOOST_TEST(pair.events_a.lost.size() == 1U);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(connecting_to_a_peer_that_is_gone_is_a_loss, Network, Networks) {
  Pair<Network> pair;
  const std::vector<std::byte> address = pair.b->address();
  pair.b.reset();
  const ConnectionId dead = pair.a->connect(address).value();
  BOOST_REQUIRE(pair.events_a.wait_for([&] {
    return std::any_of(pair.events_a.lost.begin(), pair.events_a.lost.end(),
                       [&](const auto& lost) { return lost.first == dead; });
  }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_closed_connection_takes_nothing_and_reports_nothing, Network,
                              Networks) {
  Pair<Network> pair;
  BOOST_REQUIRE((pair.send(1, 1000) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(1));
  pair.a->close(pair.to_b);
  pair.a->close(pair.to_b);
  Frame frame = test::activations(2, 64);
  BOOST_TEST((pair.a->send(pair.to_b, frame) == SendOutcome::kClosed));
  // The peer still works, by a new connection.
  const ConnectionId again = pair.a->connect(pair.b->address()).value();
  BOOST_TEST((again != pair.to_b));
  BOOST_REQUIRE((test::send_all(*pair.a, pair.events_a, again, test::activations(3, 64)) ==
                 SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(2));
  pair.events_b.release_frames();
  pair.b.reset();
  BOOST_REQUIRE(pair.events_a.wait_for([&] { return !pair.events_a.lost.empty(); }));
  pair.a.reset();
  BOOST_REQUIRE(pair.events_a.lost.size() == 1U);
  BOOST_TEST((pair.events_a.lost[0].first == again));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_frame_that_breaks_the_rules_loses_the_connection, Network,
                              Networks) {
  Pair<Network> pair;
  Frame frame = test::activations(1, 64);
  frame.header.hidden = 15;
  BOOST_TEST((pair.a->send(pair.to_b, frame) == SendOutcome::kClosed));
  BOOST_REQUIRE(pair.events_a.wait_for([&] { return !pair.events_a.lost.empty(); }));
  BOOST_TEST((pair.events_a.lost[0].second.code == ErrorCode::kInvalidFrame));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(refuses_what_is_no_address, Network, Networks) {
  Pair<Network> pair;
  for (const size_t size : {size_t{0}, size_t{16}, size_t{60}, kAddressMax + 1}) {
    const auto result = pair.a->connect(std::vector<std::byte>(size));
    BOOST_REQUIRE(!result.ok());
    BOOST_TEST((result.error().code == ErrorCode::kInvalidArgument));
  }
  Frame frame = test::activations(1, 64);
  BOOST_TEST((pair.a->send({12345}, frame) == SendOutcome::kClosed));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_released_frame_may_outlive_its_transport, Network, Networks) {
  Pair<Network> pair;
  BOOST_REQUIRE((pair.send(1, 100000) == SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(1));
  pair.a.reset();
  pair.b.reset();
  BOOST_TEST(test::is_activations(pair.events_b.frames[0], 1));
}

// UCX pairs endpoints of both directions on one socket; closing one must not take the other along.
BOOST_AUTO_TEST_CASE_TEMPLATE(closing_one_connection_leaves_the_others, Network, Networks) {
  Pair<Network> pair;
  const ConnectionId to_a = pair.b->connect(pair.a->address()).value();
  const ConnectionId second_to_b = pair.a->connect(pair.b->address()).value();
  BOOST_REQUIRE((pair.send(1, 50000) == SendOutcome::kAccepted));
  BOOST_REQUIRE((test::send_all(*pair.b, pair.events_b, to_a, test::activations(1, 50000)) ==
                 SendOutcome::kAccepted));
  BOOST_REQUIRE(pair.received(1));
  pair.a->close(pair.to_b);
  for (uint64_t i = 1; i <= 20; ++i) {
    BOOST_REQUIRE((test::send_all(*pair.b, pair.events_b, to_a, test::activations(i, 50000)) ==
                   SendOutcome::kAccepted));
    BOOST_REQUIRE((test::send_all(*pair.a, pair.events_a, second_to_b,
                                  test::activations(i, 50000)) == SendOutcome::kAccepted));
    BOOST_REQUIRE(pair.received(1 + i));
    BOOST_REQUIRE(pair.events_a.wait_for([&] { return pair.events_a.frames_seen >= 1 + i; }));
  }
  BOOST_TEST(pair.events_a.losses() == 0U);
  BOOST_TEST(pair.events_b.losses() == 0U);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(connections_come_and_go_without_end, Network, Networks) {
  Pair<Network> pair;
  pair.events_b.only_count_frames();
  for (uint64_t i = 1; i <= 50; ++i) {
    const ConnectionId connection = pair.a->connect(pair.b->address()).value();
    BOOST_REQUIRE((test::send_all(*pair.a, pair.events_a, connection, test::activations(i, 3000)) ==
                   SendOutcome::kAccepted));
    BOOST_REQUIRE(pair.received(i));
    pair.a->close(connection);
  }
  BOOST_REQUIRE((pair.send(51, 64) == SendOutcome::kAccepted));
  BOOST_TEST(pair.received(51));
  BOOST_TEST(pair.events_a.losses() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

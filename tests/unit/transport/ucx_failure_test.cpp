// What peers do to a UCX transport: die, freeze, lie. The survivor goes on.
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <thread>

#include "base/digest.h"
#include "base/prng.h"
#include "tests/unit/transport/events.h"
#include "tests/unit/transport/frames.h"
#include "tests/unit/transport/peer_process.h"
#include "tests/unit/transport/ucx_support.h"
#include "transport/ucx/endpoint.h"

namespace troupe {
namespace {

using test::PeerProcess;
using test::RecordedEvents;

bool lost(RecordedEvents& events, ConnectionId connection) {
  return std::any_of(events.lost.begin(), events.lost.end(),
                     [&](const auto& entry) { return entry.first == connection; });
}

// A second transport in this process that answers for "the others still work".
struct Witness {
  RecordedEvents events;
  std::unique_ptr<Transport> transport = test::ucx_transport(events);
  ~Witness() { events.release_frames(); }

  void check(Transport& survivor, RecordedEvents& survivor_events, ConnectionId to_witness) {
    size_t before = 0;
    {
      const std::lock_guard lock(events.mutex);
      before = events.frames_seen;
    }
    BOOST_REQUIRE(
        (test::send_all(survivor, survivor_events, to_witness,
                        test::activations(before + 1, 64 << 10)) == SendOutcome::kAccepted));
    BOOST_REQUIRE(events.wait_for([&] { return events.frames_seen > before; }));
  }
};

BOOST_AUTO_TEST_SUITE(ucx_failure)

BOOST_AUTO_TEST_CASE(a_peer_killed_in_mid_stream_is_reported_and_others_go_on) {
  RecordedEvents events;
  events.only_count_frames();
  const auto survivor = test::ucx_transport(events);
  Witness witness;
  const ConnectionId to_witness = survivor->connect(witness.transport->address()).value();
  for (int round = 0; round < 5; ++round) {
    PeerProcess peer(survivor->address());  // streams to us
    const ConnectionId to_peer = survivor->connect(peer.address()).value();
    size_t before = 0;
    {
      const std::lock_guard lock(events.mutex);
      before = events.frames_seen;
    }
    // Streams to it until it is lost: large frames in flight both ways when it dies.
    std::thread sending([&] {
      for (uint64_t i = 1;; ++i) {
        Frame frame = test::activations(i, 1 << 20);
        SendOutcome outcome = SendOutcome::kNoCredit;
        while ((outcome = survivor->send(to_peer, frame)) == SendOutcome::kNoCredit)
          std::this_thread::yield();
        if (outcome == SendOutcome::kClosed) return;
      }
    });
    const bool streams = events.wait_for([&] { return events.frames_seen >= before + 20; });
    peer.end(SIGKILL);
    const bool reported = events.wait_for([&] { return lost(events, to_peer); });
    if (!reported) survivor->close(to_peer);
    sending.join();
    BOOST_REQUIRE(streams);
    BOOST_REQUIRE(reported);
    witness.check(*survivor, events, to_witness);
  }
  BOOST_TEST(events.losses() == 5U);
}

// Connecting is when UCX itself is most easily upset by a death (see Endpoint::send()).
BOOST_AUTO_TEST_CASE(a_peer_killed_while_it_connects_is_lost_like_any_other) {
  RecordedEvents events;
  events.only_count_frames();
  const auto survivor = test::ucx_transport(events);
  Witness witness;
  const ConnectionId to_witness = survivor->connect(witness.transport->address()).value();
  constexpr uint64_t kSeed = 11;
  for (uint64_t round = 0; round < 25; ++round) {
    PeerProcess peer(survivor->address());
    const ConnectionId to_peer = survivor->connect(peer.address()).value();
    // Somewhere in the first milliseconds; counted, not timed, and without giving up the core.
    const auto turns = static_cast<uint64_t>(philox_uniform(kSeed, round, 0) * 1e7F);
    for (volatile uint64_t turn = 0; turn < turns;) turn = turn + 1;
    peer.end(SIGKILL);
    BOOST_REQUIRE_MESSAGE(events.wait_for([&] { return lost(events, to_peer); }),
                          "seed " << kSeed << " round " << round);
  }
  witness.check(*survivor, events, to_witness);
}

BOOST_AUTO_TEST_CASE(a_frozen_peer_is_not_reported_and_can_be_closed) {
  RecordedEvents events;
  auto survivor = test::ucx_transport(events);
  Witness witness;
  const ConnectionId to_witness = survivor->connect(witness.transport->address()).value();
  PeerProcess peer;
  const ConnectionId to_peer = survivor->connect(peer.address()).value();
  Frame frame = test::activations(1, 1 << 20);
  BOOST_REQUIRE((survivor->send(to_peer, frame) == SendOutcome::kAccepted));
  // The stream flows: 2 windows can only be taken if the peer releases frames.
  for (uint64_t i = 0; i < 2 * kWindow; ++i)
    BOOST_REQUIRE((test::send_all(*survivor, events, to_peer, test::activations(i, 1 << 16)) ==
                   SendOutcome::kAccepted));
  peer.signal(SIGSTOP);
  uint64_t taken = 0;
  while (true) {
    frame = test::activations(1, 1 << 20);
    const SendOutcome outcome = survivor->send(to_peer, frame);
    BOOST_REQUIRE((outcome != SendOutcome::kClosed));
    if (outcome == SendOutcome::kNoCredit) break;
    BOOST_REQUIRE(++taken <= kWindow);
  }
  witness.check(*survivor, events, to_witness);
  BOOST_TEST(events.losses() == 0U);
  survivor->close(to_peer);
  witness.check(*survivor, events, to_witness);
  survivor.reset();  // must not hang on buffers the peer never took
  peer.signal(SIGCONT);
  BOOST_TEST(events.losses() == 0U);
}

BOOST_AUTO_TEST_CASE(destroying_a_transport_with_a_frozen_peer_and_data_in_flight_ends) {
  RecordedEvents events;
  auto survivor = test::ucx_transport(events);
  PeerProcess peer;
  const ConnectionId to_peer = survivor->connect(peer.address()).value();
  peer.signal(SIGSTOP);
  for (int i = 0; i < 50; ++i) {
    Frame frame = test::activations(1, 1 << 20);
    survivor->send(to_peer, frame);
  }
  survivor.reset();
  BOOST_TEST(events.losses() == 0U);
}

BOOST_AUTO_TEST_CASE(a_peer_that_ends_in_order_ends_with_success) {
  RecordedEvents events;
  const auto survivor = test::ucx_transport(events);
  PeerProcess peer(survivor->address());
  BOOST_REQUIRE(events.wait_for([&] { return events.frames_seen > 10; }));
  events.release_frames();
  const int status = peer.finish();
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 0);
  events.release_frames();
}

BOOST_AUTO_TEST_CASE(an_address_of_another_life_is_refused) {
  RecordedEvents events_a, events_b;
  const auto a = test::ucx_transport(events_a), b = test::ucx_transport(events_b);
  ucx::Address earlier = ucx::decode_address(b->address(), test::kUcxKey).value();
  earlier.instance ^= 1;  // the same port, another process
  const ConnectionId stale = a->connect(ucx::encode_address(earlier, test::kUcxKey)).value();
  Frame frame = test::activations(1, 100000);
  a->send(stale, frame);
  BOOST_REQUIRE(events_a.wait_for([&] { return lost(events_a, stale); }));
  BOOST_TEST(events_a.lost[0].second.message.find("another instance") != std::string::npos,
             events_a.lost[0].second.message);
  BOOST_TEST(events_b.frames_kept() == 0U);
}

BOOST_AUTO_TEST_CASE(an_address_of_another_cluster_is_refused) {
  RecordedEvents events_a, events_b;
  UcxOptions other;
  other.key = test::kUcxKey + 1;
  const auto a = test::ucx_transport(events_a, other), b = test::ucx_transport(events_b);
  const auto result = a->connect(b->address());
  BOOST_REQUIRE(!result.ok());
  BOOST_TEST((result.error().code == ErrorCode::kInvalidArgument));
}

BOOST_AUTO_TEST_CASE(a_peer_that_never_answers_the_hello_is_lost_at_the_deadline) {
  RecordedEvents events;
  UcxOptions options;
  options.connect_timeout = 200ms;
  const auto transport = test::ucx_transport(events, options);
  PeerProcess peer;
  peer.signal(SIGSTOP);
  const ConnectionId connection = transport->connect(peer.address()).value();
  BOOST_REQUIRE(events.wait_for([&] { return lost(events, connection); }));
  BOOST_TEST((events.lost[0].second.code == ErrorCode::kDeadlineExceeded));
}

// Speaks UCX and knows the key, but does what it likes.
class Liar {
 public:
  explicit Liar(const Transport& victim) {
    victim_ = ucx::decode_address(victim.address(), test::kUcxKey).value();
    context_ = ucx::Context::create().value();
    worker_ = ucx::Worker::create(*context_, &Liar::ignore, nullptr).value();
    endpoint_ = ucx::Endpoint::create(*worker_, victim_.worker, watch_).value();
  }
  ~Liar() {
    endpoint_->close();
    progress([&] { return endpoint_->closed(); });
  }

  ucx::Envelope envelope(ucx::MessageKind kind, uint64_t number) const {
    ucx::Envelope out;
    out.kind = kind;
    out.sender = kInstance;
    out.receiver = victim_.instance;
    out.connection = 1;
    out.number = number;
    return out;
  }
  void send(ucx::Envelope envelope, ByteSpan data, uint64_t key = test::kUcxKey) {
    SharedBuffer buffer = SharedBuffer::allocate(data.size());
    std::copy(data.begin(), data.end(), buffer.mutable_data());
    const ucx::Message message{envelope, std::move(buffer), {}};
    if (envelope.kind == ucx::MessageKind::kFrame)
      endpoint_->send(message, key);
    else
      endpoint_->send_control(message, key);
    progress([&] {
      endpoint_->retry_control();
      return endpoint_->idle();
    });
  }
  void hello() {
    const auto address =
        ucx::encode_address({kInstance, worker_->address().value()}, test::kUcxKey);
    ucx::Envelope out = envelope(ucx::MessageKind::kHello, digest64(address, test::kUcxKey));
    out.header_bytes = static_cast<uint32_t>(address.size());
    send(out, address);
  }
  template <class Done>
  void progress(Done done) {
    for (int i = 0; i < 10'000'000 && !done(); ++i) worker_->progress(64);
    BOOST_REQUIRE(done());
  }
  // Keeps the liar's side of UCX going until the victim noticed.
  template <class Done>
  void until(RecordedEvents& events, Done done) {
    progress([&] {
      const std::lock_guard lock(events.mutex);
      return done();
    });
  }

 private:
  static constexpr uint64_t kInstance = 4711;
  static ucs_status_t ignore(void*, const void*, size_t, void*, size_t,
                             const ucp_am_recv_param_t*) {
    return UCS_OK;
  }
  ucx::Address victim_;
  std::unique_ptr<ucx::Context> context_;
  std::unique_ptr<ucx::Worker> worker_;
  ucx::EndpointWatch watch_;
  std::shared_ptr<ucx::Endpoint> endpoint_;
};

struct Lies {
  RecordedEvents events;
  std::unique_ptr<Transport> victim = test::ucx_transport(events);
  Witness witness;
  ConnectionId to_witness = victim->connect(witness.transport->address()).value();

  void expect_garbage(Liar& liar, const std::string& part) {
    liar.until(events, [&] {
      return std::any_of(events.garbage.begin(), events.garbage.end(), [&](const Error& what) {
        return what.message.find(part) != std::string::npos;
      });
    });
    witness.check(*victim, events, to_witness);
    BOOST_TEST(events.frames_kept() == 0U);
  }
  static ucx::Envelope sized(ucx::Envelope envelope, size_t header) {
    envelope.header_bytes = static_cast<uint32_t>(header);
    return envelope;
  }
};

BOOST_AUTO_TEST_CASE(bytes_that_are_no_frame_end_the_liars_connection_only) {
  Lies lies;
  Liar liar(*lies.victim);
  liar.hello();
  const std::vector<std::byte> noise(500, std::byte{0x5a});
  liar.send(Lies::sized(liar.envelope(ucx::MessageKind::kFrame, 1), noise.size()), noise);
  lies.expect_garbage(liar, "frame magic");
}

BOOST_AUTO_TEST_CASE(a_large_message_that_is_no_frame_is_dropped) {
  Lies lies;
  Liar liar(*lies.victim);
  liar.hello();
  const std::vector<std::byte> noise(kFrameHeaderMax, std::byte{0x5a});  // a rendezvous
  liar.send(Lies::sized(liar.envelope(ucx::MessageKind::kFrame, 1), noise.size()), noise);
  lies.expect_garbage(liar, "frame magic");
}

BOOST_AUTO_TEST_CASE(a_wrong_key_a_false_hello_and_false_numbers_are_garbage) {
  Lies lies;
  Liar liar(*lies.victim);
  liar.send(liar.envelope(ucx::MessageKind::kGoodbye, 0), {}, 99);
  lies.expect_garbage(liar, "digest of the envelope");
  const std::vector<std::byte> noise(60, std::byte{0x5a});
  liar.send(Lies::sized(liar.envelope(ucx::MessageKind::kHello, 5), noise.size()), noise);
  lies.expect_garbage(liar, "digest of a control message");
  liar.send(Lies::sized(liar.envelope(ucx::MessageKind::kHello, digest64(noise, test::kUcxKey)),
                        noise.size()),
            noise);
  lies.expect_garbage(liar, "without its sender's address");
  liar.hello();
  liar.send(Lies::sized(liar.envelope(ucx::MessageKind::kFrame, 999), noise.size()), noise);
  lies.expect_garbage(liar, "frame 999");
}

BOOST_AUTO_TEST_CASE(a_sender_that_ignores_its_window_is_cut_off) {
  Lies lies;
  Liar liar(*lies.victim);
  liar.hello();
  for (uint64_t i = 1; i <= kWindow + 1; ++i) {
    const Frame frame = test::tokens(i, 4);
    const auto header = encode_frame_header(frame.header, {}, test::kUcxKey).value();
    liar.send(Lies::sized(liar.envelope(ucx::MessageKind::kFrame, i), header.size()),
              header.view());
  }
  liar.until(lies.events, [&] {
    return !lies.events.garbage.empty() &&
           lies.events.garbage[0].message.find("unreleased") != std::string::npos;
  });
  lies.witness.check(*lies.victim, lies.events, lies.to_witness);
  lies.events.release_frames();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

// Links in trouble: wrong configuration, frozen and slow peers, full windows, a busy thread, no
// descriptors left.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "tests/unit/peer/peer_world.h"

namespace troupe::test {
namespace {

// Sends until the link takes no more; the number of messages taken.
size_t stuff(Node& node, LinkId link, const ControlMessage& message) {
  size_t taken = 0;
  while (true) {
    const Result<void> sent = node.links->send(link, message);
    if (sent.ok()) {
      ++taken;
      continue;
    }
    BOOST_REQUIRE((sent.error().code == ErrorCode::kResourceExhausted));
    return taken;
  }
}

// Lowers the limit of descriptors to those that are open now; gives it back at the end.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = ::dup(0);
    ::close(lowest_free);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(peer_trouble)

BOOST_AUTO_TEST_CASE(start_refuses_what_it_cannot_use_and_names_it) {
  const std::pair<const char*, void (*)(PeerOptions&)> cases[] = {
      {"TLS", [](PeerOptions& o) { o.listen = std::string("0.0.0.0:0"); }},
      {"port", [](PeerOptions& o) { o.listen = std::string("127.0.0.1"); }},
      {"node id", [](PeerOptions& o) { o.hello.node = std::string("a b"); }},
      {"cluster", [](PeerOptions& o) { o.hello.cluster_id = std::string(""); }},
      {"incarnation", [](PeerOptions& o) { o.hello.incarnation = {}; }},
      {"beat interval", [](PeerOptions& o) { o.beat_interval = 0ms; }},
      {"deadline", [](PeerOptions& o) { o.hello_deadline = 0ms; }},
      {"redial", [](PeerOptions& o) { o.redial_max = o.redial_min / 2; }},
      {"limit", [](PeerOptions& o) { o.connections_max = 0; }},
      {"limit", [](PeerOptions& o) { o.unacknowledged_bytes_max = 1; }}};
  for (const auto& [expected, spoil] : cases) {
    PeerOptions options = options_of("node", 1);
    spoil(options);
    Recorder events;
    const auto started = PeerLinks::start(options, events);
    BOOST_REQUIRE_MESSAGE(!started.ok(), expected);
    BOOST_TEST((started.error().code == ErrorCode::kInvalidArgument));
    BOOST_TEST(started.error().message.find(expected) != std::string::npos,
               started.error().message);
  }
}

BOOST_AUTO_TEST_CASE(a_port_in_use_is_named_and_left_alone) {
  Node first(listening(options_of("head", 11)));
  PeerOptions options = options_of("other", 12);
  options.listen = first.address();
  Recorder events;
  const auto second = PeerLinks::start(options, events);
  BOOST_REQUIRE(!second.ok());
  BOOST_TEST((second.error().code == ErrorCode::kIo));
  BOOST_TEST(second.error().message.find(first.address()) != std::string::npos);
  BOOST_TEST(second.error().message.find("in use") != std::string::npos);
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(first.address()).ok());
  first.events->await_up();
}

BOOST_AUTO_TEST_CASE(dial_refuses_other_machines_and_port_zero) {
  Node node(options_of("node", 1));
  for (const char* address : {"10.0.0.1:7420", "127.0.0.1:0", "nowhere"}) {
    const Result<void> dialled = node.links->dial(address);
    BOOST_REQUIRE_MESSAGE(!dialled.ok(), address);
    BOOST_TEST((dialled.error().code == ErrorCode::kInvalidArgument));
  }
}

BOOST_AUTO_TEST_CASE(peers_that_do_not_fit_are_refused_on_both_sides) {
  Node head(listening(options_of("head", 11)));
  const std::pair<const char*, void (*)(PeerOptions&)> cases[] = {
      {"cluster", [](PeerOptions& o) { o.hello.cluster_id = std::string("other"); }},
      {"protocol", [](PeerOptions& o) { o.hello.protocol_min = o.hello.protocol_max = 99; }},
      {"another process", [](PeerOptions& o) { o.hello.node = std::string("head"); }}};
  for (const auto& [expected, spoil] : cases) {
    PeerOptions options = options_of("worker", 22);
    spoil(options);
    const Node worker(options);
    BOOST_REQUIRE(worker.links->dial(head.address()).ok());
    const Recorder::Refusal there = worker.events->await_refusal();
    BOOST_TEST(there.who == head.address());
    BOOST_TEST(there.why.message.find(expected) != std::string::npos, there.why.message);
    BOOST_TEST(there.why.message.find("the peer says") != std::string::npos, there.why.message);
    head.events->await(expected, [expected = expected](const Recorder::Told& told) {
      return std::ranges::any_of(told.refusals, [&](const Recorder::Refusal& here) {
        return here.why.code == ErrorCode::kInvalidArgument &&
               here.why.message.find(expected) != std::string::npos;
      });
    });
  }
  BOOST_TEST(head.events->told().ups.empty());
}

BOOST_AUTO_TEST_CASE(a_node_that_dials_itself_is_refused) {
  Node node(listening(options_of("node", 1)));
  BOOST_REQUIRE(node.links->dial(node.address()).ok());
  node.events->await_refusal(2);
  BOOST_TEST(node.events->told().refusals[0].why.message.find("dialled itself") !=
             std::string::npos);
  BOOST_TEST(node.events->told().ups.empty());
}

BOOST_AUTO_TEST_CASE(an_address_where_nobody_listens_is_told_once_and_tried_until_somebody_does) {
  std::string address;
  {
    Node gone(listening(options_of("gone", 9)));
    address = gone.address();
  }
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(address).ok());
  BOOST_TEST(worker.events->await_refusal().who == address);
  PeerOptions options = options_of("head", 11);
  options.listen = address;
  Node head(options);
  worker.events->await_up();
  BOOST_TEST(worker.events->told().refusals.size() == 1U);
}

BOOST_AUTO_TEST_CASE(more_than_the_window_is_refused_until_the_peer_acknowledges) {
  PeerOptions options = listening(options_of("head", 11));
  options.unacknowledged_max = 8;
  Node head(options);
  RawLink raw = raw_link(head, raw_hello("raw", 5));
  const LinkId link = head.events->await_up();
  BOOST_TEST(stuff(head, link, numbered(1)) == 8U);
  for (int i = 0; i < 8; ++i) raw.messages.hear(PacketKind::kMessage);
  // Three acknowledged: three more fit. The answer to a message of ours shows that they were taken
  // in.
  BOOST_REQUIRE(raw.messages.send(PacketKind::kAcknowledge, {}, 0, 3));
  BOOST_REQUIRE(
      raw.messages.send(PacketKind::kMessage, encode_control(numbered(2)).value().view(), 1, 3));
  head.events->await("the message",
                     [&](const Recorder::Told& told) { return told.messages.size() == 1; });
  BOOST_TEST(stuff(head, link, numbered(1)) == 3U);
}

BOOST_AUTO_TEST_CASE(a_message_above_a_limit_is_refused_and_the_link_goes_on) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId at_worker = worker.events->await_up();
  const LinkId at_head = head.events->await_up();
  ControlMessage message = long_message(1);
  std::get<InstallView>(message.body).view.seats.resize(1025);
  const Result<void> refused = worker.links->send(at_worker, message);
  BOOST_REQUIRE(!refused.ok());
  BOOST_TEST((refused.error().code == ErrorCode::kInvalidArgument));
  check_works(head, at_head, worker, at_worker);
}

BOOST_AUTO_TEST_CASE(a_frozen_peer_is_gone_after_the_write_deadline) {
  PeerOptions options = listening(options_of("head", 11));
  options.write_deadline = 100ms;
  Node head(options);
  RawLink raw = raw_link(head, raw_hello("raw", 5));
  const LinkId link = head.events->await_up();
  // 60 MB: more than the kernel's buffers hold. The raw peer reads none of it. On a slow machine
  // the deadline may pass before the window is full.
  while (head.links->send(link, long_message(1)).ok()) {
  }
  const Recorder::Down down = head.events->await_down();
  BOOST_TEST((down.why.code == ErrorCode::kDeadlineExceeded), down.why.message);
}

BOOST_AUTO_TEST_CASE(beats_go_on_while_the_message_stream_is_stuffed) {
  Node head(listening(options_of("head", 11)));
  RawLink raw = raw_link(head, raw_hello("raw", 5));
  const LinkId link = head.events->await_up();
  stuff(head, link, long_message(1));
  uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const auto beat = decode_beat(raw.beats.hear(PacketKind::kBeat).payload);
    BOOST_REQUIRE(beat.ok());
    BOOST_TEST(beat.value().number > last);
    last = beat.value().number;
  }
}

BOOST_AUTO_TEST_CASE(beats_go_on_while_the_asio_thread_is_busy) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<bool> blocked{false};
  head.events->during_message = [&blocked, released] {
    blocked = true;
    released.wait();
  };
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId at_worker = worker.events->await_up();
  head.events->await_up();
  BOOST_REQUIRE(worker.links->send(at_worker, numbered(1)).ok());
  head.events->await("the message that blocks",
                     [&](const Recorder::Told& told) { return !told.messages.empty(); });
  const auto count = [](Node& node) { return node.events->told().beats.size(); };
  for (Node* node : {&worker, &head}) {
    const size_t before = count(*node);
    node->events->await("ten more beats", [&](const Recorder::Told& told) {
      return told.beats.size() >= before + 10;
    });
  }
  release.set_value();
}

BOOST_AUTO_TEST_CASE(a_frozen_peer_does_not_hold_up_others_or_the_end) {
  Node head(listening(options_of("head", 11)));
  RawLink frozen = raw_link(head, raw_hello("frozen", 5));
  const LinkId to_frozen = head.events->await_up();
  stuff(head, to_frozen, long_message(1));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId at_head = head.events->await_up(2);
  check_works(head, at_head, worker, worker.events->await_up());
  head.links->close(to_frozen, "frozen");
  head.events->await_down();
  check_works(head, at_head, worker, worker.events->await_up());
}

BOOST_AUTO_TEST_CASE(an_unfinished_hello_is_closed_at_its_deadline) {
  PeerOptions options = listening(options_of("head", 11));
  options.hello_deadline = 50ms;
  Node head(options);
  const auto packet =
      whole_packet({.kind = PacketKind::kHello}, hello_bytes(raw_hello("raw", 5)).view());
  RawStream half = RawStream::connect(head.port());
  BOOST_REQUIRE(half.send(ByteSpan(packet).first(packet.size() - 1)));
  BOOST_TEST((head.events->await_refusal().why.code == ErrorCode::kDeadlineExceeded));
  half.await_end();
  // A hello without a beat stream is no link either.
  RawStream lonely = RawStream::connect(head.port());
  BOOST_REQUIRE(lonely.send(packet));
  BOOST_REQUIRE(lonely.send(PacketKind::kReady, {}));
  BOOST_TEST((head.events->await_refusal(2).why.code == ErrorCode::kDeadlineExceeded));
  lonely.await_end();
  BOOST_TEST(head.events->told().ups.empty());
}

BOOST_AUTO_TEST_CASE(links_above_the_limit_are_refused_but_a_node_may_replace_its_own) {
  PeerOptions options = listening(options_of("head", 11));
  options.connections_max = 3;
  Node head(options);
  std::vector<RawLink> links;
  for (const char* node : {"a", "b", "c"}) links.push_back(raw_link(head, raw_hello(node, 5)));
  head.events->await_up(3);
  RawStream above = RawStream::connect(head.port());
  BOOST_REQUIRE(above.send(PacketKind::kHello, hello_bytes(raw_hello("d", 6)).view()));
  above.hear(PacketKind::kGoodbye);
  BOOST_TEST((head.events->await_refusal().why.code == ErrorCode::kResourceExhausted));
  const RawLink again = raw_link(head, raw_hello("b", 7));
  head.events->await_up(4);
  BOOST_TEST((head.events->await_down().why.code == ErrorCode::kConflict));
}

BOOST_AUTO_TEST_CASE(connections_that_say_nothing_are_limited) {
  PeerOptions options = listening(options_of("head", 11));
  options.connections_max = 1;  // and one more in its hello
  Node head(options);
  RawStream first = RawStream::connect(head.port());
  RawStream second = RawStream::connect(head.port());
  RawStream above = RawStream::connect(head.port());
  above.await_end();
  BOOST_TEST((head.events->await_refusal().why.code == ErrorCode::kResourceExhausted));
  first.close();
  second.close();
  head.events->await_refusal(3);
  const RawLink link = raw_link(head, raw_hello("raw", 7));
  head.events->await_up();
}

// The undefined-behaviour sanitizer looks at memory through a pipe, so it needs descriptors itself.
boost::test_tools::assertion_result descriptors_are_ours_alone(boost::unit_test::test_unit_id) {
#ifdef __SANITIZE_ADDRESS__
  boost::test_tools::assertion_result skipped(false);
  skipped.message() << "SKIPPED: not under the address and undefined-behaviour sanitizers";
  return skipped;
#else
  return true;
#endif
}

BOOST_AUTO_TEST_CASE(without_descriptors_links_go_on_and_accepting_resumes,
                     *boost::unit_test::precondition(descriptors_are_ours_alone)) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId at_worker = worker.events->await_up();
  const LinkId at_head = head.events->await_up();
  OwnedFd knocking(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoDescriptors none;
    RawStream::connect_socket(knocking.get(),
                              head.port());  // done by the kernel; accepting it fails
    for (int i = 0; i < 3; ++i) check_works(head, at_head, worker, at_worker);
    BOOST_TEST(head.events->told().refusals.empty());
  }
  RawStream late(std::move(knocking));
  BOOST_REQUIRE(late.send(as_byte_span("GET / HTTP/1.1\r\n\r\n")));
  BOOST_TEST(head.events->await_refusal().why.message.find("HTTP") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

// Links that work: coming up, messages, beats, replacement, adoption, ending in order.
#include <algorithm>
#include <thread>

#include "tests/unit/peer/peer_world.h"

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(peer_links)

BOOST_AUTO_TEST_CASE(a_link_comes_up_and_tells_both_sides_who_is_there) {
  PeerOptions head_options = listening(options_of("head", 11));
  head_options.hello.listen = std::string("here");
  Node head(head_options);
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  head.events->await_up();
  worker.events->await_up();
  BOOST_TEST(head.events->told().ups[0].peer.node == "worker");
  BOOST_TEST(head.events->told().ups[0].peer.incarnation.value == 22U);
  BOOST_TEST(worker.events->told().ups[0].peer.node == "head");
  BOOST_TEST(worker.events->told().ups[0].peer.incarnation.value == 11U);
  BOOST_TEST(worker.events->told().ups[0].peer.listen == "here");
}

BOOST_AUTO_TEST_CASE(messages_arrive_once_and_in_order_both_ways) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId at_head = head.events->await_up();
  const LinkId at_worker = worker.events->await_up();
  constexpr uint64_t kCount = 5000;
  for (uint64_t call = 1; call <= kCount; ++call) {
    for (const auto& [from, link] : {std::pair(&head, at_head), std::pair(&worker, at_worker)}) {
      while (true) {
        const Result<void> sent = from->links->send(link, numbered(call));
        if (sent.ok()) break;
        BOOST_REQUIRE((sent.error().code == ErrorCode::kResourceExhausted));
        std::this_thread::yield();  // the window opens as acknowledgements come
      }
    }
  }
  for (Node* node : {&head, &worker}) {
    node->events->await("all messages",
                        [&](const Recorder::Told& told) { return told.messages.size() >= kCount; });
    const Recorder::Told told = node->events->told();
    BOOST_REQUIRE(told.messages.size() == kCount);
    for (uint64_t i = 0; i < kCount; ++i) BOOST_REQUIRE(told.messages[i].second.call == i + 1);
  }
}

BOOST_AUTO_TEST_CASE(long_messages_arrive_whole) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId link = worker.events->await_up();
  for (uint64_t call = 1; call <= 3; ++call)
    BOOST_REQUIRE(worker.links->send(link, long_message(call)).ok());
  head.events->await("long messages",
                     [&](const Recorder::Told& told) { return told.messages.size() == 3; });
  for (uint64_t call = 1; call <= 3; ++call) {
    const auto got = encode_control(head.events->told().messages[call - 1].second);
    const auto expected = encode_control(long_message(call));
    BOOST_TEST(std::ranges::equal(got.value().view(), expected.value().view()));
  }
}

BOOST_AUTO_TEST_CASE(beats_carry_progress_and_grow_by_one) {
  PeerOptions worker_options = options_of("worker", 22);
  worker_options.progress = [] {
    return std::vector<Progress>{{.stage = 3, .started = 8, .finished = 7}};
  };
  Node head(listening(options_of("head", 11)));
  Node worker(worker_options);
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId link = head.events->await_up();
  worker.events->await("beats of the head",
                       [&](const Recorder::Told& told) { return told.beats.size() >= 3; });
  head.events->await("beats of the worker",
                     [&](const Recorder::Told& told) { return told.beats.size() >= 5; });
  const Recorder::Told told = head.events->told();
  uint64_t last = 0;
  for (const auto& [from, beat] : told.beats) {
    BOOST_TEST((from == link));
    BOOST_TEST(beat.number > last);
    last = beat.number;
    BOOST_REQUIRE(beat.progress.size() == 1U);
    BOOST_TEST(beat.progress[0].stage == 3U);
    BOOST_TEST(beat.progress[0].started == 8U);
    BOOST_TEST(beat.progress[0].finished == 7U);
  }
}

BOOST_AUTO_TEST_CASE(a_stale_beat_is_dropped) {
  Node head(listening(options_of("head", 11)));
  RawLink raw = raw_link(head, raw_hello("raw", 5));
  head.events->await_up();
  for (const uint64_t number : {5U, 4U, 5U, 6U}) {
    const auto bytes = encode_beat({.number = number, .progress = {}});
    BOOST_REQUIRE(raw.beats.send(PacketKind::kBeat, bytes.value().view()));
  }
  head.events->await("the last beat", [&](const Recorder::Told& told) {
    return !told.beats.empty() && told.beats.back().second.number == 6;
  });
  uint64_t last = 0;
  const Recorder::Told all = head.events->told();
  for (const auto& [link, beat] : all.beats) {
    BOOST_TEST(beat.number > last);
    last = beat.number;
  }
}

BOOST_AUTO_TEST_CASE(a_peer_that_beats_but_does_not_hear_counts_from_when_it_did) {
  Node head(listening(options_of("head", 11)));
  RawLink raw = raw_link(head, raw_hello("raw", 5));
  head.events->await_up();
  // It answers each beat of the head: at first it hears them, later it does not any more.
  constexpr uint64_t kHearing = 5, kBeats = 40;
  const Instant start = steady_now();
  uint64_t newest = 0;
  for (uint64_t number = 1; number <= kBeats; ++number) {
    const auto beat = decode_beat(raw.beats.hear(PacketKind::kBeat).payload);
    BOOST_REQUIRE(beat.ok());
    if (number <= kHearing) newest = beat.value().number;
    const auto bytes = encode_beat({.number = number, .progress = {}, .heard = newest});
    BOOST_REQUIRE(raw.beats.send(PacketKind::kBeat, bytes.value().view()));
  }
  head.events->await("the last beat", [&](const Recorder::Told& told) {
    return !told.beats.empty() && told.beats.back().second.number == kBeats;
  });
  const Recorder::Told all = head.events->told();
  BOOST_TEST((all.heard.front() >= start));
  // 35 beats of 5 ms went unheard; the last one counts from soon after the fifth.
  BOOST_TEST((all.heard.back() < steady_now() - 20 * 5ms));
}

BOOST_AUTO_TEST_CASE(a_peer_that_comes_back_is_a_new_link) {
  auto head = std::make_unique<Node>(listening(options_of("head", 11)));
  const std::string address = head->address();
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(address).ok());
  const LinkId first = worker.events->await_up();
  head.reset();
  const Recorder::Down down = worker.events->await_down();
  BOOST_TEST((down.link == first));
  BOOST_TEST((down.why.code == ErrorCode::kUnavailable));
  BOOST_TEST((worker.links->send(first, numbered(1)).error().code == ErrorCode::kUnavailable));

  PeerOptions again = options_of("head", 12);
  again.listen = address;
  Node next(again);
  const LinkId second = worker.events->await_up(2);
  BOOST_TEST((second != first));
  BOOST_TEST(worker.events->told().ups[1].peer.incarnation.value == 12U);
  const LinkId at_head = next.events->await_up();
  check_works(worker, second, next, at_head);
}

BOOST_AUTO_TEST_CASE(a_newer_link_of_a_node_replaces_the_older_one) {
  Node head(listening(options_of("head", 11)));
  RawLink first = raw_link(head, raw_hello("raw", 5));
  const LinkId link = head.events->await_up(1);
  RawLink same_life = raw_link(head, raw_hello("raw", 5));
  Recorder::Down down = head.events->await_down(1);
  BOOST_TEST((down.link == link));
  BOOST_TEST((down.why.code == ErrorCode::kConflict));
  BOOST_TEST(down.why.message.find("the same node") != std::string::npos);
  first.messages.hear(PacketKind::kGoodbye);
  first.messages.await_end();

  RawLink next_life = raw_link(head, raw_hello("raw", 6));
  down = head.events->await_down(2);
  BOOST_TEST((down.link == head.events->told().ups[1].link));
  BOOST_TEST(down.why.message.find("a new incarnation") != std::string::npos);
  const LinkId last = head.events->await_up(3);
  BOOST_REQUIRE(head.links->send(last, numbered(9)).ok());
  next_life.messages.hear(PacketKind::kMessage);
}

BOOST_AUTO_TEST_CASE(a_socket_pair_makes_a_link_that_ends_with_the_other_process) {
  Node daemon(options_of("node", 1));
  auto child = std::make_unique<Node>(options_of("node/stage-0", 2));
  const Result<LinkSocketPair> pair = make_link_sockets();
  BOOST_REQUIRE(pair.ok());
  BOOST_REQUIRE(daemon.links->adopt(pair.value().ours).ok());
  BOOST_REQUIRE(child->links->adopt(pair.value().theirs).ok());
  const LinkId at_daemon = daemon.events->await_up();
  const LinkId at_child = child->events->await_up();
  BOOST_TEST(daemon.events->told().ups[0].peer.node == "node/stage-0");
  check_works(daemon, at_daemon, *child, at_child);
  daemon.events->await("beats of the child",
                       [&](const Recorder::Told& told) { return told.beats.size() >= 3; });
  child->events->await("beats of the daemon",
                       [&](const Recorder::Told& told) { return told.beats.size() >= 3; });
  child.reset();
  BOOST_TEST((daemon.events->await_down().link == at_daemon));
}

BOOST_AUTO_TEST_CASE(the_death_of_a_process_is_its_streams_end) {
  Node daemon(options_of("node", 1));
  const Result<LinkSocketPair> pair = make_link_sockets();
  BOOST_REQUIRE(daemon.links->adopt(pair.value().ours).ok());
  RawStream messages{OwnedFd(pair.value().theirs.messages)};
  RawStream beats{OwnedFd(pair.value().theirs.beats)};
  BOOST_REQUIRE(
      messages.send(PacketKind::kHello, hello_bytes(raw_hello("node/stage-0", 2)).view()));
  BOOST_REQUIRE(messages.send(PacketKind::kReady, {}));
  daemon.events->await_up();
  // The kernel closes the sockets of a dead process: what it wrote is read, and there is no
  // goodbye.
  const ControlMessage last = {.call = 0, .answer = false, .body = Leaving{"last words"}};
  BOOST_REQUIRE(messages.send(PacketKind::kMessage, encode_control(last).value().view(), 1));
  beats.close();
  messages.close();
  BOOST_TEST((daemon.events->await_down().why.code == ErrorCode::kUnavailable));
  BOOST_TEST(daemon.events->told().messages.size() == 1U);
}

BOOST_AUTO_TEST_CASE(the_end_of_the_beat_stream_alone_ends_the_link) {
  Node head(listening(options_of("head", 11)));
  RawLink raw = raw_link(head, raw_hello("raw", 5));
  head.events->await_up();
  raw.beats.close();
  const Recorder::Down down = head.events->await_down();
  BOOST_TEST((down.why.code == ErrorCode::kUnavailable));
  BOOST_TEST(down.why.message.find("beat stream") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(only_connected_stream_sockets_are_adopted) {
  Node daemon(options_of("node", 1));
  const auto refused = [&](int messages, int beats) {
    const Result<void> adopted = daemon.links->adopt({.messages = messages, .beats = beats});
    return !adopted.ok() && adopted.error().code == ErrorCode::kInvalidArgument;
  };
  BOOST_TEST(refused(-1, -1));
  BOOST_TEST(refused(::socket(AF_INET, SOCK_STREAM, 0), -1));
  BOOST_TEST(refused(::socket(AF_INET, SOCK_DGRAM, 0), -1));
}

BOOST_AUTO_TEST_CASE(closing_lets_the_last_messages_out) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  const LinkId at_head = head.events->await_up();
  worker.events->await_up();
  BOOST_REQUIRE(head.links->send(at_head, long_message(1)).ok());
  BOOST_REQUIRE(
      head.links->send(at_head, {.call = 0, .answer = false, .body = Evicted{"silent"}}).ok());
  head.links->close(at_head, "declared dead");
  const Recorder::Down here = head.events->await_down();
  BOOST_TEST((here.why.code == ErrorCode::kCancelled));
  BOOST_TEST((head.links->send(at_head, numbered(1)).error().code == ErrorCode::kUnavailable));
  const Recorder::Down there = worker.events->await_down();
  BOOST_TEST(there.why.message.find("declared dead") != std::string::npos, there.why.message);
  const Recorder::Told told = worker.events->told();
  BOOST_REQUIRE(told.messages.size() == 2U);
  BOOST_TEST(std::holds_alternative<Evicted>(told.messages[1].second.body));

  worker.events->await_up(2);  // it dials again
}

BOOST_AUTO_TEST_CASE(after_stop_dialling_a_lost_link_stays_lost) {
  Node head(listening(options_of("head", 11)));
  Node worker(options_of("worker", 22));
  BOOST_REQUIRE(worker.links->dial(head.address()).ok());
  head.events->await_up();
  const LinkId link = worker.events->await_up();
  worker.links->stop_dialling(head.address());
  worker.links->close(link, "enough");
  worker.events->await_down();
  head.events->await_down();
  // Another node's link comes up after the redial would have (pauses are at most 20 ms, and it
  // takes its time to stop and start).
  Node other(options_of("other", 33));
  BOOST_REQUIRE(other.links->dial(head.address()).ok());
  BOOST_TEST((head.events->await_up(2), head.events->told().ups[1].peer.node == "other"));
}

BOOST_AUTO_TEST_CASE(destruction_sends_what_is_queued_and_tells_nothing) {
  Node head(listening(options_of("head", 11)));
  auto worker_events = std::make_unique<Recorder>();
  auto worker = PeerLinks::start(options_of("worker", 22), *worker_events).value();
  BOOST_REQUIRE(worker->dial(head.address()).ok());
  const LinkId link = worker_events->await_up();
  BOOST_REQUIRE(worker->send(link, {.call = 0, .answer = false, .body = Leaving{"SIGTERM"}}).ok());
  worker.reset();
  BOOST_TEST(worker_events->told().downs.empty());
  worker_events.reset();  // an event after the destructor would be found by the sanitizers
  head.events->await_down();
  BOOST_REQUIRE(head.events->told().messages.size() == 1U);
  BOOST_TEST(std::holds_alternative<Leaving>(head.events->told().messages[0].second.body));
}

BOOST_AUTO_TEST_CASE(nodes_start_dial_and_end_in_any_order_without_leaks) {
  for (int round = 0; round < 10; ++round) {
    Node head(listening(options_of("head", 11)));
    Node a(options_of("a", 22));
    Node b(options_of("b", 33));
    BOOST_REQUIRE(a.links->dial(head.address()).ok());
    BOOST_REQUIRE(b.links->dial(head.address()).ok());
    if (round % 2 == 0) head.events->await_up();
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

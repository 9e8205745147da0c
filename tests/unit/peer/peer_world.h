// What the tests of peer links share: a node whose events can be waited for, and a peer made of
// plain sockets that says whatever a test wants. Waiting is for an event with a deadline, never for
// time to pass.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "transport/peer/link_messages.h"
#include "transport/peer/packet.h"
#include "transport/peer/peer_links.h"
#include "transport/peer/sockets.h"

namespace troupe::test {

// Longer than anything takes, even under a sanitizer on a busy machine; reached only by a failing
// test.
inline constexpr Duration kPatience = 20s;

class Recorder : public PeerEvents {
 public:
  struct Up {
    LinkId link;
    PeerHello peer;
  };
  struct Down {
    LinkId link;
    Error why;
  };
  struct Refusal {
    std::string who;
    Error why;
  };
  struct Told {
    std::vector<Up> ups;
    std::vector<std::pair<LinkId, ControlMessage>> messages;
    std::vector<std::pair<LinkId, Beat>> beats;
    std::vector<Instant> heard;  // [beat]: from when it counts
    std::vector<Down> downs;
    std::vector<Refusal> refusals;
  };
  std::function<void()> during_message;  // on the Asio thread, without the lock

  void on_up(LinkId link, const PeerHello& peer) override {
    note([&] { told_.ups.push_back({link, peer}); });
  }
  void on_message(LinkId link, ControlMessage message) override {
    note([&] { told_.messages.emplace_back(link, std::move(message)); });
    if (during_message) during_message();
  }
  void on_beat(LinkId link, const Beat& beat, Instant heard) override {
    note([&] {
      told_.beats.emplace_back(link, beat);
      told_.heard.push_back(heard);
    });
  }
  void on_down(LinkId link, const Error& why) override {
    note([&] { told_.downs.push_back({link, why}); });
  }
  void on_refused(const std::string& who, const Error& why) override {
    note([&] { told_.refusals.push_back({who, why}); });
  }

  // Fails the test if `reached(told)` does not become true.
  template <class Condition>
  void await(const char* what, Condition reached) {
    std::unique_lock lock(mutex_);
    const bool happened = changed_.wait_for(lock, kPatience, [&] { return reached(told_); });
    BOOST_REQUIRE_MESSAGE(happened, "never happened: " << what);
  }
  // A copy of everything so far: events go on while a test looks at it.
  Told told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  LinkId await_up(size_t count = 1) {
    await("a link comes up", [&](const Told& told) { return told.ups.size() >= count; });
    return told().ups[count - 1].link;
  }
  Down await_down(size_t count = 1) {
    await("a link goes down", [&](const Told& told) { return told.downs.size() >= count; });
    return told().downs[count - 1];
  }
  Refusal await_refusal(size_t count = 1) {
    await("a connection is refused",
          [&](const Told& told) { return told.refusals.size() >= count; });
    return told().refusals[count - 1];
  }

 private:
  template <class Act>
  void note(Act act) {
    {
      const std::lock_guard lock(mutex_);
      act();
    }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Told told_;
};

inline PeerOptions options_of(const std::string& node, uint64_t incarnation) {
  PeerOptions options;
  options.hello.cluster_id = std::string("test-cluster");
  options.hello.node = node;
  options.hello.incarnation = {incarnation};
  options.hello_deadline = kPatience;  // tests of deadlines shorten theirs
  options.write_deadline = kPatience;
  options.beat_interval = 5ms;
  options.redial_min = 5ms;
  options.redial_max = 20ms;
  return options;
}

inline PeerOptions listening(PeerOptions options) {
  options.listen = std::string("127.0.0.1:0");
  return options;
}

// `events` outlives `links`.
struct Node {
  std::unique_ptr<Recorder> events = std::make_unique<Recorder>();
  std::unique_ptr<PeerLinks> links;

  explicit Node(PeerOptions options) {
    Result<std::unique_ptr<PeerLinks>> started = PeerLinks::start(std::move(options), *events);
    BOOST_REQUIRE_MESSAGE(started.ok(), "start: " << (started.ok() ? "" : started.error().message));
    links = std::move(started).value();
  }
  std::string address() const { return links->listen_address(); }
  uint16_t port() const {
    const std::string text = address();
    return static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
  }
};

inline ControlMessage numbered(uint64_t call) {
  return {.call = call, .answer = false, .body = Acknowledged{}};
}

// About 4 MiB: a view of 1000 seats with the longest address each.
inline ControlMessage long_message(uint64_t call) {
  View view{.deployment = "d",
            .number = {call},
            .batcher = {1},
            .batcher_address = {},
            .seats = {},
            .standbys = {}};
  for (uint32_t i = 0; i < 1000; ++i)
    view.seats.push_back({.node = "n",
                          .node_incarnation = {i},
                          .incarnation = {i},
                          .layers = {i, i + 1},
                          .data_address = std::vector<std::byte>(4096, static_cast<std::byte>(i)),
                          .process = i});
  return {.call = call, .answer = false, .body = InstallView{std::move(view)}};
}

// A peer of plain blocking sockets.
class RawStream {
 public:
  explicit RawStream(OwnedFd socket) : socket_(std::move(socket)) {}
  static RawStream connect(uint16_t port) {
    OwnedFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connect_socket(socket.get(), port);
    return RawStream(std::move(socket));
  }
  static void connect_socket(int socket, uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_REQUIRE_EQUAL(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }

  // False if the other side has closed.
  bool send(ByteSpan bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
    return true;
  }
  bool send(PacketKind kind, ByteSpan payload, uint64_t number = 0, uint64_t acknowledged = 0) {
    return send(
        whole_packet({.kind = kind, .number = number, .acknowledged = acknowledged}, payload));
  }

  struct Heard {
    PacketHeader header;
    std::vector<std::byte> payload;
  };
  // The next packet, or nothing at the end of the stream.
  std::optional<Heard> hear() {
    while (true) {
      Result<std::optional<Packet>> packet = reader_.next(kControlMessageMax);
      BOOST_REQUIRE(packet.ok());
      if (packet.value()) {
        const ByteSpan payload = packet.value()->payload;
        return Heard{packet.value()->header, {payload.begin(), payload.end()}};
      }
      pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);
      BOOST_REQUIRE_MESSAGE(::poll(&readable, 1, static_cast<int>(patience.count())) == 1,
                            "the other side says nothing");
      const std::span<std::byte> space = reader_.space();
      const ssize_t got = ::recv(socket_.get(), space.data(), space.size(), 0);
      if (got <= 0) return std::nullopt;
      reader_.filled(static_cast<size_t>(got));
    }
  }
  // The next packet of a kind, over others.
  Heard hear(PacketKind kind) {
    while (true) {
      std::optional<Heard> heard = hear();
      BOOST_REQUIRE_MESSAGE(heard, "the stream ended");
      if (heard->header.kind == kind) return std::move(*heard);
    }
  }
  void await_end() {
    while (hear()) {
    }
  }
  void close() { socket_.reset(); }
  int fd() const { return socket_.get(); }

 private:
  OwnedFd socket_;
  PacketReader reader_;
};

// Both streams of a link whose other end is a Node.
struct RawLink {
  RawStream messages, beats;
};

inline SharedBuffer hello_bytes(const PeerHello& peer, uint64_t token = 77) {
  Result<SharedBuffer> bytes = encode_hello({peer, token});
  BOOST_REQUIRE(bytes.ok());
  return std::move(bytes).value();
}

inline RawLink raw_link(const Node& node, const PeerHello& peer) {
  RawStream messages = RawStream::connect(node.port());
  BOOST_REQUIRE(messages.send(PacketKind::kHello, hello_bytes(peer).view()));
  const Result<LinkHello> theirs = decode_hello(messages.hear(PacketKind::kHello).payload);
  BOOST_REQUIRE(theirs.ok());
  RawStream beats = RawStream::connect(node.port());
  BOOST_REQUIRE(
      beats.send(PacketKind::kBeatHello, encode_beat_hello(theirs.value().token).value().view()));
  BOOST_REQUIRE(messages.send(PacketKind::kReady, {}));
  messages.hear(PacketKind::kReady);
  return {std::move(messages), std::move(beats)};
}

inline PeerHello raw_hello(const std::string& node, uint64_t incarnation) {
  return options_of(node, incarnation).hello;
}

// A message there and back over a link: it works.
inline void check_works(Node& a, LinkId a_link, Node& b, LinkId b_link) {
  static uint64_t call = 1'000'000;
  for (const auto& [from, from_link, to] :
       {std::tuple(&a, a_link, &b), std::tuple(&b, b_link, &a)}) {
    const uint64_t expected = ++call;
    BOOST_REQUIRE(from->links->send(from_link, numbered(expected)).ok());
    to->events->await("a message over the healthy link", [&](const Recorder::Told& told) {
      const auto& messages = told.messages;
      return !messages.empty() && messages.back().second.call == expected;
    });
  }
}

}  // namespace troupe::test

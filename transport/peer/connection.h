// One message stream, from its first byte to its last: hello, messages and acknowledgements,
// goodbye. It belongs to the Asio thread; only push() and close_later() may come from others.
//
//   dialled side            accepted side             Both sides of a socket pair do as the dialled
//   side does, and hello        ------->                             have their beat stream from
//   the start.
//                <-------   hello
//   beat hello   ------->   (on the beat stream)      ready means: I accepted your hello and have
//   the beat stream. ready        ------->                             A side is up once it said
//   and heard it. What follows ready on
//                <-------   ready                     the stream therefore reaches a side that is
//                up.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "transport/channel.h"
#include "transport/control.h"
#include "transport/peer/link_messages.h"
#include "transport/peer/packet.h"
#include "transport/peer/peer_links.h"
#include "transport/peer/sockets.h"

namespace troupe {

class Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

// What a connection tells its owner, on the Asio thread. None may destroy the owner.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // A well-formed hello came. An error refuses it and is told to the peer.
  virtual Result<void> greeted(const ConnectionPtr& connection) = 0;
  // An accepted connection turned out to be the beat stream of the link whose end has this token.
  // It is gone: the socket is the owner's.
  virtual void beat_stream_came(const std::string& who, uint64_t token, OwnedFd socket) = 0;
  // Both sides are ready: push() may be called, messages come after this.
  virtual void came_up(const ConnectionPtr& connection) = 0;
  virtual void received(const ConnectionPtr& connection, ControlMessage message) = 0;
  // Once, unless it was a beat stream: over, or about to be (what is queued may still be flushed).
  virtual void ended(const ConnectionPtr& connection, const Error& why) = 0;
  // Once: the socket is closed.
  virtual void gone(const ConnectionPtr& connection) = 0;
};

enum class ConnectionRole : uint8_t { kAccepted, kDialled, kAdopted };

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct About {
    ConnectionRole role = ConnectionRole::kAccepted;
    std::string who;      // the other end's address, for the log
    std::string dialled;  // the address as it was dialled; else empty
  };
  Connection(boost::asio::io_context& io, StreamSocket socket, About about,
             const PeerOptions& options, ConnectionOwner& owner);

  void begin();
  // The beat stream of this link; once, before it comes up.
  void join(OwnedFd beats);
  OwnedFd take_beats() { return std::move(beats_); }
  // Kept open until the messages are flushed: the peer takes the end of either stream for our end.
  void keep_beats(OwnedFd beats) { beats_ = std::move(beats); }
  // The other end of the beat stream is gone. If the message stream does not end by itself at once,
  // the link does.
  void beats_ended(Error why);

  // Any thread. Errors: kUnavailable, kResourceExhausted.
  Result<void> push(SharedBuffer message);
  // Lets what is queued out for at most `flush`, says goodbye, closes. ended() comes at once.
  void close(Error why, Duration flush);

  const About& about() const { return about_; }
  const PeerHello& peer() const { return peer_.peer; }
  uint64_t peer_token() const { return peer_.token; }
  uint64_t token() const { return token_; }
  bool waits_for_beats() const { return phase_ == Phase::kJoining && !joined_; }
  bool greeted() const { return phase_ == Phase::kJoining || phase_ == Phase::kUp; }
  bool up() const { return phase_ == Phase::kUp; }

  LinkId link;  // the owner's: 0 until it came up
  Instant up_since{};

 private:
  enum class Phase : uint8_t { kHello, kJoining, kUp, kClosing, kClosed };
  struct Outgoing {
    PacketHeader header;
    SharedBuffer payload;
    uint64_t digest = 0;
  };

  void read();
  void read_done(boost::system::error_code error, size_t bytes);
  void take_packets();
  Result<void> take(const Packet& packet);
  Result<void> take_first(const Packet& packet);
  Result<void> take_message(const Packet& packet);
  Result<void> take_acknowledgement(uint64_t number);
  void become_beat_stream(uint64_t token);

  void say(PacketKind kind, SharedBuffer payload);
  void say_hello();
  void say_ready();
  void up_if_ready();
  void pump();
  void gather();
  void write();
  void write_done(boost::system::error_code error, size_t bytes);

  void fail(Error why, bool say_why);
  void start_closing(const Error& why, Duration flush);
  void flushed();
  void close_now();
  void expect(Duration within, Error otherwise);

  StreamSocket socket_;
  const About about_;
  const PeerOptions& options_;
  ConnectionOwner& owner_;
  const uint64_t token_;
  Phase phase_ = Phase::kHello;
  LinkHello peer_;
  OwnedFd beats_;
  bool joined_ = false, said_ready_ = false, heard_ready_ = false, told_end_ = false;
  boost::asio::steady_timer phase_timer_, write_timer_;

  PacketReader reader_;
  ChannelReceiver receiver_;
  std::deque<Outgoing> sayings_;  // hello, ready: before any message
  std::optional<Outgoing> goodbye_;
  std::deque<Outgoing> writing_;  // with their headers in heads_, while a write is under way
  std::deque<PacketHeaderBytes> heads_;
  size_t written_ = 0;  // bytes of the first of writing_ that are gone
  bool write_under_way_ = false, write_failed_ = false, shut_ = false;

  std::mutex mutex_;  // of what push() touches
  bool open_ = false;
  bool pump_posted_ = false;
  ChannelSender sender_;
  std::deque<Outgoing> queue_;
  boost::asio::io_context& io_;
};

}  // namespace troupe

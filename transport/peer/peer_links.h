// Peer links: control messages between processes over TCP (or a socket pair with a child), on one
// Asio thread, and beats on a thread of their own. Bytes here are untrusted: whatever a peer sends,
// the worst is that its link ends.
//
// A link is two streams: one for messages, one for beats, so that neither a long message nor a busy
// Asio thread delays a beat. It is up after both hellos were accepted and the beat stream was
// joined. Messages arrive once and in order while it is up; when it goes down, everything pending
// on it fails at once; a reconnected peer is a new LinkId. The end of either stream ends the link,
// so a process that dies shows at once. One link a node: when a node that already has one comes up
// again, the newer link wins, whatever its incarnation. Exactly one side dials. Beyond loopback,
// links need TLS and are refused by start() and dial().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "transport/control.h"

namespace troupe {

using LinkId = Id64<struct LinkTag>;

inline constexpr uint32_t kProtocolMin = 1, kProtocolMax = 1;

struct PeerHello {
  uint32_t protocol_min = kProtocolMin;
  uint32_t protocol_max = kProtocolMax;
  std::string cluster_id;  // both sides' must be equal
  NodeId node;             // "node-2", or "node-2/stage-1" of a stage process
  Incarnation incarnation;
  std::string listen;  // where this node listens, for people; may be empty
};

// Progress of a process's compute threads, by stage number: micro-batches started and finished so
// far. A thread that is busy (started > finished) and stands still shows here although the process
// beats.
struct Progress {
  uint32_t stage = 0;
  uint64_t started = 0;
  uint64_t finished = 0;
};

struct Beat {
  uint64_t number =
      0;  // grows by one with each beat of this incarnation; a beat that is not newer is dropped
  std::vector<Progress> progress;
  uint64_t heard = 0;  // the newest beat of ours that it had heard when it sent this; 0: none yet
};

inline constexpr size_t kBeatProgressMax = 256;  // entries; more are not sent

// Called on the links' threads (on_beat on the beat thread, all others on the Asio thread): must
// not block; each posts a message to an actor. send(), close() and dial() may be called from here,
// the destructor may not. For one link: on_up, then messages and beats in any mixture, then
// on_down, and nothing after it. Of beats that arrive together only the newest is told.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  virtual void on_up(LinkId link, const PeerHello& peer) = 0;
  virtual void on_message(LinkId link, ControlMessage message) = 0;
  virtual void on_beat(LinkId link, const Beat& beat, Instant heard) = 0;
  // Once per on_up, also after close(); not from the destructor. kUnavailable: the stream ended;
  // kCancelled: closed here; kConflict: a newer link of the same node took over; kInvalidFrame:
  // garbage; kDeadlineExceeded: took no bytes; kIo; or what the peer said when it closed.
  virtual void on_down(LinkId link, const Error& why) = 0;
  // A connection that never came up: refused hello, garbage, timeout. `who` is its address; for the
  // log. A dialled address that keeps failing in the same way is told once until it fails
  // differently or comes up.
  virtual void on_refused(const std::string& who, const Error& why) = 0;
};

struct PeerOptions {
  PeerHello hello;
  std::string listen;  // "127.0.0.1:7420"; port 0 picks one; empty: does not listen
  Duration beat_interval = 25ms;
  Duration hello_deadline = 2s;  // a connection that has not said hello by then is closed
  Duration write_deadline = 5s;  // a peer that takes no byte for so long is gone
  Duration close_flush = 500ms;  // close() gives queued messages so long to get out
  Duration redial_min = 20ms, redial_max = 1s;
  size_t connections_max = 1024;       // links; as many more connections may be in their hello
  uint64_t unacknowledged_max = 1024;  // messages; the window of transport/channel
  uint64_t unacknowledged_bytes_max = uint64_t{64} << 20;
  std::function<std::vector<Progress>()> progress;  // called on the beat thread; must not block
};

// Both streams of a link as file descriptors: of one end of two socket pairs.
struct LinkSockets {
  int messages = -1;
  int beats = -1;
};
struct LinkSocketPair {
  LinkSockets ours, theirs;
};
// For a child process: `theirs` goes to the child (all four are close-on-exec: duplicate them
// there, after the fork), `ours` to adopt(). The parent closes `theirs` after the fork, or it would
// not see the child die. Errors: kIo.
Result<LinkSocketPair> make_link_sockets();

class PeerLinks {
 public:
  // Errors: kInvalidArgument (options, address, not loopback), kIo (port in use: the message names
  // it).
  static Result<std::unique_ptr<PeerLinks>> start(PeerOptions options, PeerEvents& events);
  // Closes all: no event once it has begun but those already running. What is queued gets 50 ms to
  // get out.
  ~PeerLinks();

  // The address it listens on with the real port; empty if it does not listen.
  std::string listen_address() const;
  // Keeps a link to this address: dials again with back-off after each loss or refusal, until
  // stop_dialling. Addresses are "127.0.0.1:7420", "[::1]:7420" or "localhost:7420". Dialling an
  // address twice changes nothing. Errors: kInvalidArgument (no address, port 0, not loopback).
  Result<void> dial(const std::string& address);
  // No further attempt. A link that is up stays up; close() it to end it.
  void stop_dialling(const std::string& address);
  // A link over connected stream sockets, to a child process or to the daemon that started this
  // one. Takes over both descriptors, also when it fails. Both sides adopt. Errors:
  // kInvalidArgument (not connected stream sockets).
  Result<void> adopt(LinkSockets sockets);

  // Any thread. Errors: kUnavailable (link down), kResourceExhausted (window full),
  // kInvalidArgument (too large).
  Result<void> send(LinkId link, ControlMessage message);
  // Any thread. Messages already sent get close_flush to get out; on_down comes at once. An unknown
  // link is ignored.
  void close(LinkId link, std::string why);

 private:
  class Impl;
  explicit PeerLinks(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe

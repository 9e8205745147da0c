// Peer links: control messages between processes over TCP (or a socket pair with a child), on one Asio thread, and
// beats on a thread of their own. Bytes here are untrusted: whatever a peer sends, the worst is that its link ends.
//
// A link is up after both hellos were accepted. Messages arrive once and in order while it is up; when it goes
// down, everything pending on it fails at once; a reconnected peer is a new LinkId.
// Exactly one side dials. Beyond loopback, links need TLS and are refused by start() and dial().
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
  std::string listen;      // where this node listens, for people; may be empty
};

// Progress of a process's compute threads, by stage number: micro-batches started and finished so far. A thread that is
// busy (started > finished) and stands still shows here although the process beats.
struct Progress {
  uint32_t stage = 0;
  uint64_t started = 0;
  uint64_t finished = 0;
};

struct Beat {
  uint64_t number = 0;  // grows by one with each beat of this incarnation; a beat that is not newer is dropped
  std::vector<Progress> progress;
};

// Called on the links' threads: must not block; each posts a message to an actor.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  virtual void on_up(LinkId link, const PeerHello& peer) = 0;
  virtual void on_message(LinkId link, ControlMessage message) = 0;
  virtual void on_beat(LinkId link, const Beat& beat, Instant heard) = 0;
  virtual void on_down(LinkId link, const Error& why) = 0;  // once per on_up
  // A connection that never came up: refused hello, garbage, timeout. `who` is its address; for the log.
  virtual void on_refused(const std::string& who, const Error& why) = 0;
};

struct PeerOptions {
  PeerHello hello;
  std::string listen;                       // "127.0.0.1:7420"; port 0 picks one; empty: does not listen
  Duration beat_interval = 25ms;
  Duration hello_deadline = 2s;             // a connection that has not said hello by then is closed
  Duration write_deadline = 5s;             // a peer that takes no byte for so long is gone
  Duration redial_min = 20ms, redial_max = 1s;
  size_t connections_max = 1024;
  uint64_t unacknowledged_max = 1024;       // messages; the window of transport/channel
  std::function<std::vector<Progress>()> progress;  // called on the beat thread; must not block
};

class PeerLinks {
 public:
  // Errors: kInvalidArgument (address, not loopback), kIo (port in use: the message names it).
  static Result<std::unique_ptr<PeerLinks>> start(PeerOptions options, PeerEvents& events);
  ~PeerLinks();  // closes all; no event after it

  // The address it listens on with the real port; empty if it does not listen.
  std::string listen_address() const;
  // Keeps a link to this address: dials again with back-off after each loss or refusal, until stop_dialling.
  Result<void> dial(const std::string& address);
  void stop_dialling(const std::string& address);
  // Takes over one end of a connected stream socket (a socket pair with a child process).
  Result<void> adopt(int socket);

  // Any thread. Errors: kUnavailable (link down), kResourceExhausted (window full), kInvalidArgument (too large).
  Result<void> send(LinkId link, ControlMessage message);
  void close(LinkId link, std::string why);

 private:
  class Impl;
  explicit PeerLinks(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe

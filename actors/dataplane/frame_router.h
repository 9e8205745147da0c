// Frames between the transport and those who use them, without an actor in between: a hop costs
// three wake-ups (compute thread, progress thread, progress thread, compute thread) and no more.
// Incoming frames go to the receiver that is bound to their incarnation, on the transport's thread;
// outgoing ones leave on the caller's, over one connection per address, and wait here, bounded,
// while the receiver has no credit to give. It copies nothing and decides nothing.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace troupe {

using FramePtr = std::shared_ptr<Frame>;

// Who takes frames. Called on the transport's thread, one frame at a time: must not block or throw.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void on_frame(FramePtr frame) = 0;
};

struct RouterFigures {
  TransportFigures transport;
  uint64_t unroutable = 0;  // frames for an incarnation nobody has here
  uint64_t dropped = 0;     // could not be sent: no connection, or the queue was full
};

class FrameRouter final : public TransportEvents {
 public:
  // `waiting_max`: frames per connection without credit; beyond, the newest is dropped.
  explicit FrameRouter(size_t waiting_max = 1024);
  ~FrameRouter() override;

  // Once, before anything else. The transport was made with this router as its events and ends
  // before it.
  void attach(std::shared_ptr<Transport> transport);
  // Forgets the transport and all sinks; nothing is sent or delivered any more.
  void detach();

  // Any thread, all of these. Frames for this incarnation go to this sink until it is unbound; a
  // call that is running when unbind() returns may still end later.
  void bind(Incarnation incarnation, std::shared_ptr<FrameSink> sink);
  void unbind(Incarnation incarnation);
  // Connects on first use. Frames to one address keep their order. There is no answer: a lost frame
  // shows as silence, and a lost process through its peer link.
  void send(ByteSpan address, FramePtr frame);
  // Closes every connection to an address that is not in the list (a new view was installed).
  void keep(const std::vector<std::vector<std::byte>>& addresses);
  RouterFigures figures() const;

  void on_frame(Frame frame) override;
  void on_lost(ConnectionId connection, Error why) override;
  void on_credit(ConnectionId connection) override;
  void on_garbage(Error what) override;

 private:
  struct Connection {
    ConnectionId id;
    std::deque<FramePtr> waiting;
  };
  void flush(Connection& connection);
  void drop_waiting(Connection& connection);

  const size_t waiting_max_;
  mutable std::mutex sinks_mutex_;
  std::map<Incarnation, std::shared_ptr<FrameSink>> sinks_;
  mutable std::mutex mutex_;  // of what follows; the transport is called under it
  std::shared_ptr<Transport> transport_;
  std::map<std::string, Connection> connections_;  // by address
  std::vector<FramePtr> rubbish_;  // dropped frames: their leases are let go of unlocked
  std::atomic<uint64_t> unroutable_{0}, dropped_{0};
};

}  // namespace troupe

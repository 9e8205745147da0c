// The link actor: transport on one side, mailboxes on the other. It copies nothing and decides
// nothing: frames that arrive go to the actor that is bound to their receiver incarnation; frames
// to send go out over one connection per address, and wait here, bounded, while the receiver has no
// credit to give.
#pragma once

#include <memory>

#include "actors/messages.h"

namespace troupe {

struct LinkOptions {
  std::shared_ptr<Transport> transport;
  size_t waiting_max = 1024;  // frames per connection without credit; beyond, the newest is dropped
};

// Turns the transport's callbacks into messages. Lives as long as the transport.
class LinkPort final : public TransportEvents {
 public:
  // Call once, before the transport connects or can be reached.
  void attach(LinkActor link) { link_ = std::move(link); }
  // After this no message is sent; call before the actor system ends.
  void detach() { link_ = nullptr; }
  void on_frame(Frame frame) override;
  void on_lost(ConnectionId connection, Error why) override;
  void on_credit(ConnectionId connection) override;
  void on_garbage(Error what) override;

 private:
  LinkActor link_;
};

struct LinkState;
LinkActor::behavior_type link_actor(LinkActor::stateful_pointer<LinkState> self,
                                    LinkOptions options);

struct LinkState {
  static inline const char* name = "link";

  struct Connection {
    ConnectionId id;
    std::deque<FramePtr> waiting;
  };

  LinkActor::stateful_pointer<LinkState> self = nullptr;
  LinkOptions options;
  std::map<Incarnation, FrameReceiver> receivers;
  std::map<std::string, Connection> connections;  // by address
  uint64_t unroutable = 0, dropped = 0;

  void send(const SendFrame& order);
  void flush(Connection& connection);
  void drop_waiting(Connection& connection);
  void keep(const KeepConnections& order);
  void lost(const ConnectionLost& loss);
  void credit(ConnectionId id);
};

}  // namespace troupe

// The peer actor: the peer links on one side, mailboxes on the other. It knows which link leads to
// which node, routes control messages to whoever is in charge of them, and keeps every call
// answered: by the peer, by its loss, or by time.
//
// Three roles, one code. The head hears the nodes that dial it; a worker dials its head (its
// "upstream"); a stage process has its daemon as upstream. A daemon of either role also hears its
// stage processes, whose node ids begin with its own.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "actors/messages.h"
#include "actors/owed_promise.h"

namespace troupe {

enum class PeerRole : uint8_t { kHead, kWorker, kStage };

// What the peer actor needs of transport/peer, so that tests and simulation can put a wire of their
// own here.
class PeerWire {
 public:
  virtual ~PeerWire() = default;
  virtual Result<void> send(LinkId link, ControlMessage message) = 0;
  virtual void close(LinkId link, std::string why) = 0;
};

struct PeerActorOptions {
  std::shared_ptr<PeerWire> wire;
  PeerRole role = PeerRole::kHead;
  NodeId self;
  Incarnation incarnation;
  std::string listen;  // for people
  size_t upstream_waiting_max =
      256;  // messages kept for an upstream that is not there; the oldest go first
  Duration tick = 20ms;
};

struct PeerState {
  static inline const char* name = "peer";

  struct Link {
    NodeId node;
    Incarnation incarnation;
    std::string address;
  };
  struct Waiting {
    LinkId link;
    Instant deadline;
    OwedPromise<PeerAnswer> promise;
  };

  PeerActor::stateful_pointer<PeerState> self = nullptr;
  PeerActorOptions options;
  BindPeerListeners listeners;
  std::map<LinkId, Link> links;
  std::map<uint64_t, Waiting> calls;  // by call number
  uint64_t next_call = 1;
  std::deque<ControlBody> upstream_waiting;

  bool is_child(const NodeId& node) const;
  const PeerListener& listener_of(const NodeId& node) const;
  const PeerListener& self_listener() const { return listeners.upstream; }
  std::optional<LinkId> link_to(const NodeId& node) const;
  std::optional<LinkId> upstream_link() const;

  void bind(const BindPeerListeners& bound);
  void up(const LinkUp& event);
  void down(LinkId link, const Error& why);
  void said(const LinkSaid& event);
  void answer(LinkId link, uint64_t call, ControlBody body);
  void call(const CallPeer& order, OwedPromise<PeerAnswer> promise);
  void call_self(const CallPeer& order, OwedPromise<PeerAnswer> promise);
  void tell_upstream(const ControlBody& body);
  void evict(const EvictPeer& order);
  void expire();
};

PeerActor::behavior_type peer_actor(PeerActor::stateful_pointer<PeerState> self,
                                    PeerActorOptions options);

// Turns the peer links' callbacks into messages to the peer actor and the health monitor.
class PeerPort final : public PeerEvents {
 public:
  // Call once, before the links start.
  void attach(PeerActor peer, HealthMonitor health) {
    peer_ = std::move(peer);
    health_ = std::move(health);
  }
  // After the links stopped and before the actor system ends.
  void detach() {
    peer_ = nullptr;
    health_ = nullptr;
  }
  void on_up(LinkId link, const PeerHello& peer) override;
  void on_message(LinkId link, ControlMessage message) override;
  void on_beat(LinkId link, const Beat& beat, Instant heard) override;
  void on_down(LinkId link, const Error& why) override;
  void on_refused(const std::string& who, const Error& why) override;

 private:
  PeerActor peer_;
  HealthMonitor health_;
};

}  // namespace troupe

#include "actors/peer.h"

#include <caf/send.hpp>

#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {
namespace {

PeerAnswer failed(ErrorCode code, std::string message) {
  return PeerAnswer{ControlError{code, std::move(message)}};
}

}  // namespace

void PeerPort::on_up(LinkId link, const PeerHello& peer) {
  if (peer_) caf::anon_send(peer_, LinkUp{link, peer});
}

void PeerPort::on_message(LinkId link, ControlMessage message) {
  if (peer_) caf::anon_send(peer_, LinkSaid{link, std::move(message)});
}

void PeerPort::on_beat(LinkId link, const Beat& beat, Instant heard) {
  if (health_) caf::anon_send(health_, BeatHeard{link, beat, heard});
}

void PeerPort::on_down(LinkId link, const Error& why) {
  if (peer_) caf::anon_send(peer_, LinkDown{link, why});
}

void PeerPort::on_refused(const std::string& who, const Error& why) {
  log_warning("peer", "refused {}: {}", who, to_string(why));
}

bool PeerState::is_child(const NodeId& node) const {
  return node.size() > options.self.size() && node.starts_with(options.self) &&
         node[options.self.size()] == '/';
}

const PeerListener& PeerState::listener_of(const NodeId& node) const {
  if (is_child(node)) return listeners.children;
  return options.role == PeerRole::kHead ? listeners.nodes : listeners.upstream;
}

std::optional<LinkId> PeerState::link_to(const NodeId& node) const {
  for (const auto& [link, peer] : links)
    if (peer.node == node) return link;
  return std::nullopt;
}

std::optional<LinkId> PeerState::upstream_link() const {
  for (const auto& [link, peer] : links)
    if (!is_child(peer.node)) return link;
  return std::nullopt;
}

void PeerState::bind(const BindPeerListeners& bound) {
  listeners = bound;
  if (options.role != PeerRole::kHead) return;
  // The head's own node takes part like any other: it joins first, and its upstream is right here.
  const PeerJoined joined{options.self, options.incarnation, options.listen, LinkId{}};
  if (listeners.nodes) self->send(listeners.nodes, joined);
  if (listeners.upstream) self->send(listeners.upstream, joined);
}

void PeerState::up(const LinkUp& event) {
  if (const auto old = link_to(event.peer.node))
    down(*old, Error{ErrorCode::kFenced, "replaced by a newer connection of the same node"});
  links.emplace(event.link, Link{event.peer.node, event.peer.incarnation, event.peer.listen});
  log_info("peer", "link to {} ({}) is up", event.peer.node, to_string(event.peer.incarnation));
  if (const PeerListener& listener = listener_of(event.peer.node))
    self->send(listener,
               PeerJoined{event.peer.node, event.peer.incarnation, event.peer.listen, event.link});
  if (options.role == PeerRole::kHead || is_child(event.peer.node)) return;
  for (; !upstream_waiting.empty(); upstream_waiting.pop_front())
    tell_upstream(upstream_waiting.front());
}

void PeerState::down(LinkId link, const Error& why) {
  const auto found = links.find(link);
  if (found == links.end()) return;
  const Link peer = found->second;
  links.erase(found);
  log_info("peer", "link to {} ({}) is down: {}", peer.node, to_string(peer.incarnation),
           why.message);
  for (auto call = calls.begin(); call != calls.end();) {
    if (call->second.link != link) {
      ++call;
      continue;
    }
    call->second.promise.deliver(
        failed(ErrorCode::kUnavailable, "link to " + peer.node + " went down: " + why.message));
    call = calls.erase(call);
  }
  if (const PeerListener& listener = listener_of(peer.node))
    self->send(listener, PeerLeft{peer.node, peer.incarnation, why});
}

void PeerState::said(const LinkSaid& event) {
  const auto link = links.find(event.link);
  if (link == links.end()) return;  // closed meanwhile
  if (event.message.answer) {
    const auto call = calls.find(event.message.call);
    if (call == calls.end() || call->second.link != event.link) return;  // too late, or not ours
    call->second.promise.deliver(PeerAnswer{event.message.body});
    calls.erase(call);
    return;
  }
  const PeerListener& listener = listener_of(link->second.node);
  const PeerSaid words{link->second.node, link->second.incarnation, event.message.body};
  if (event.message.call == 0) {
    if (listener) caf::anon_send(listener, words);
    return;
  }
  const LinkId from = event.link;
  const uint64_t call = event.message.call;
  if (!listener) {
    answer(from, call, ControlError{ErrorCode::kUnavailable, "nobody here takes such calls"});
    return;
  }
  // The caller has its own deadline; this one only keeps our side from waiting for ever.
  self->request(listener, caf::timespan{Duration{300s}}, words)
      .then(
          [this, from, call](const PeerAnswer& reply) { answer(from, call, reply.body); },
          [this, from, call](const caf::error& failure) {
            answer(from, call, ControlError{ErrorCode::kInternal, self->system().render(failure)});
          });
}

void PeerState::answer(LinkId link, uint64_t call, ControlBody body) {
  const auto sent = options.wire->send(link, ControlMessage{call, true, std::move(body)});
  if (!sent.ok()) log_debug("peer", "answer not sent: {}", to_string(sent.error()));
}

void PeerState::call(const CallPeer& order, OwedPromise<PeerAnswer> promise) {
  if (order.node == options.self) {
    call_self(order, std::move(promise));
    return;
  }
  const auto link = link_to(order.node);
  if (!link) {
    promise.deliver(failed(ErrorCode::kUnavailable, "no link to " + order.node));
    return;
  }
  const uint64_t number = next_call++;
  const auto sent = options.wire->send(*link, ControlMessage{number, false, order.body});
  if (!sent.ok()) {
    promise.deliver(failed(sent.error().code, sent.error().message));
    return;
  }
  calls.emplace(number, Waiting{*link, self->clock().now() + order.timeout, std::move(promise)});
}

void PeerState::call_self(const CallPeer& order, OwedPromise<PeerAnswer> promise) {
  if (!self_listener()) {
    promise.deliver(failed(ErrorCode::kUnavailable, "this node takes no such calls"));
    return;
  }
  auto owed = std::make_shared<OwedPromise<PeerAnswer>>(std::move(promise));
  self->request(self_listener(), caf::timespan{order.timeout},
                PeerSaid{options.self, options.incarnation, order.body})
      .then([owed](const PeerAnswer& reply) { owed->deliver(reply); },
            [owed, this](const caf::error& failure) {
              owed->deliver(failed(ErrorCode::kInternal, self->system().render(failure)));
            });
}

void PeerState::tell_upstream(const ControlBody& body) {
  if (options.role == PeerRole::kHead) {
    if (listeners.nodes)
      caf::anon_send(listeners.nodes, PeerSaid{options.self, options.incarnation, body});
    return;
  }
  if (const auto link = upstream_link()) {
    const auto sent = options.wire->send(*link, ControlMessage{0, false, body});
    if (!sent.ok()) log_debug("peer", "not told upstream: {}", to_string(sent.error()));
    return;
  }
  if (upstream_waiting.size() >= options.upstream_waiting_max) upstream_waiting.pop_front();
  upstream_waiting.push_back(body);
}

void PeerState::evict(const EvictPeer& order) {
  for (const auto& [link, peer] : links) {
    if (peer.node != order.node || peer.incarnation != order.incarnation) continue;
    const LinkId gone = link;
    // Best effort: a frozen peer reads it when it wakes; a dead one never does.
    (void)options.wire->send(gone, ControlMessage{0, false, Evicted{order.why}});
    options.wire->close(gone, order.why);
    down(gone, Error{ErrorCode::kFenced, order.why});
    return;
  }
}

void PeerState::expire() {
  const Instant now = self->clock().now();
  for (auto call = calls.begin(); call != calls.end();) {
    if (call->second.deadline > now) {
      ++call;
      continue;
    }
    call->second.promise.deliver(failed(ErrorCode::kDeadlineExceeded, "no answer in time"));
    call = calls.erase(call);
  }
  self->delayed_send(self, options.tick, Tick{});
}

PeerActor::behavior_type peer_actor(PeerActor::stateful_pointer<PeerState> self,
                                    PeerActorOptions options) {
  PeerState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  self->delayed_send(self, state.options.tick, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const BindPeerListeners& bound) { state.bind(bound); },
      [&state](const CallPeer& order) -> caf::result<PeerAnswer> {
        auto promise = state.self->make_response_promise<PeerAnswer>();
        state.call(order, OwedPromise<PeerAnswer>{promise});
        return promise;
      },
      [&state](const TellPeer& order) {
        if (const auto link = state.link_to(order.node)) {
          const auto sent = state.options.wire->send(*link, ControlMessage{0, false, order.body});
          if (!sent.ok()) log_debug("peer", "not told {}: {}", order.node, to_string(sent.error()));
        } else if (order.node == state.options.self && state.self_listener()) {
          caf::anon_send(state.self_listener(),
                         PeerSaid{order.node, state.options.incarnation, order.body});
        }
      },
      [&state](const TellUpstream& order) { state.tell_upstream(order.body); },
      [&state](const EvictPeer& order) { state.evict(order); },
      [&state](const LinkUp& event) { state.up(event); },
      [&state](const LinkSaid& event) { state.said(event); },
      [&state](const LinkDown& event) { state.down(event.link, event.why); },
      [&state](const Tick&) { state.expire(); },
  };
}

}  // namespace troupe

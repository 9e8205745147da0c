#include "actors/link.h"

#include <caf/send.hpp>

#include <set>

#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {

void LinkPort::on_frame(Frame frame) {
  if (link_) caf::anon_send(link_, FrameArrived{std::make_shared<Frame>(std::move(frame))});
}

void LinkPort::on_lost(ConnectionId connection, Error why) {
  if (link_) caf::anon_send(link_, ConnectionLost{connection, std::move(why)});
}

void LinkPort::on_credit(ConnectionId connection) {
  if (link_) caf::anon_send(link_, CreditReturned{connection});
}

void LinkPort::on_garbage(Error what) {
  log_warning("link", "dropped bytes: {}", to_string(what));
}

void LinkState::send(const SendFrame& order) {
  const std::string address{as_text(order.address)};
  auto found = connections.find(address);
  if (found == connections.end()) {
    auto opened = options.transport->connect(order.address);
    if (!opened.ok()) {
      ++dropped;
      log_error("link", "cannot connect: {}", to_string(opened.error()));
      return;
    }
    found = connections.emplace(address, Connection{opened.value(), {}}).first;
  }
  Connection& connection = found->second;
  if (connection.waiting.size() >= options.waiting_max) {
    ++dropped;
    log_error("link", "{} frames wait for credit already, limit {}: one dropped",
              connection.waiting.size(), options.waiting_max);
    return;
  }
  connection.waiting.push_back(order.frame);
  flush(connection);
}

void LinkState::flush(Connection& connection) {
  while (!connection.waiting.empty()) {
    const SendOutcome outcome = options.transport->send(connection.id, *connection.waiting.front());
    if (outcome == SendOutcome::kNoCredit) return;
    if (outcome == SendOutcome::kClosed) {
      drop_waiting(connection);  // ConnectionLost is on its way and forgets the connection
      return;
    }
    connection.waiting.pop_front();
  }
}

void LinkState::drop_waiting(Connection& connection) {
  dropped += connection.waiting.size();
  connection.waiting.clear();
}

void LinkState::keep(const KeepConnections& order) {
  std::set<std::string> kept;
  for (const auto& address : order.addresses) kept.emplace(as_text(address));
  for (auto entry = connections.begin(); entry != connections.end();) {
    if (kept.contains(entry->first)) {
      ++entry;
      continue;
    }
    drop_waiting(entry->second);
    options.transport->close(entry->second.id);
    entry = connections.erase(entry);
  }
}

void LinkState::lost(const ConnectionLost& loss) {
  for (auto entry = connections.begin(); entry != connections.end(); ++entry) {
    if (entry->second.id != loss.connection) continue;
    drop_waiting(entry->second);
    log_warning("link", "connection {} lost: {}", to_string(loss.connection), to_string(loss.why));
    connections.erase(entry);
    return;
  }
}

void LinkState::credit(ConnectionId id) {
  for (auto& [address, connection] : connections)
    if (connection.id == id) flush(connection);
}

LinkActor::behavior_type link_actor(LinkActor::stateful_pointer<LinkState> self,
                                    LinkOptions options) {
  LinkState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  self->set_exception_handler(keep_text);
  return {
      [&state](const SendFrame& order) { state.send(order); },
      [&state](const BindReceiver& bind) {
        state.receivers.insert_or_assign(bind.incarnation, bind.receiver);
      },
      [&state](const UnbindReceiver& unbind) { state.receivers.erase(unbind.incarnation); },
      [&state](const KeepConnections& order) { state.keep(order); },
      [&state](const FrameArrived& arrived) {
        const auto receiver = state.receivers.find(arrived.frame->header.receiver);
        if (receiver == state.receivers.end())
          ++state.unroutable;
        else
          state.self->send(receiver->second, arrived);
      },
      [&state](const ConnectionLost& loss) { state.lost(loss); },
      [&state](const CreditReturned& credit) { state.credit(credit.connection); },
      [&state](const GetLinkFigures&) {
        return LinkFigures{state.options.transport->figures(), state.unroutable, state.dropped};
      },
  };
}

}  // namespace troupe

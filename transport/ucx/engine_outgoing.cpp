#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/log.h"
#include "transport/ucx/engine.h"

namespace troupe::ucx {
namespace {

// Of one connection at UCX at a time; more waits in the backlog. Bounds what a receiver has to hold
// at once, and keeps it in the cache.
constexpr uint64_t kInFlightBytesMax = uint64_t{16} << 20;

}  // namespace

// Frames wait for the welcome: see Endpoint::send().
void Engine::pump(Outgoing& connection) {
  while (connection.welcomed && !connection.backlog.empty() &&
         connection.endpoint->bytes_in_flight() < kInFlightBytesMax &&
         !connection.endpoint->failure()) {
    Message message = std::move(connection.backlog.front());
    connection.backlog.pop_front();
    message.envelope.number = ++connection.last_number;
    shared_.figures.frames_sent.fetch_add(1, std::memory_order_relaxed);
    shared_.figures.bytes_sent.fetch_add(data_bytes(message.envelope), std::memory_order_relaxed);
    connection.endpoint->send(std::move(message), key_);
  }
}

void Engine::lose(std::shared_ptr<Outgoing> connection, Error why) {
  outgoing_.erase(connection->id);
  connection->backlog.clear();
  let_go(std::exchange(connection->endpoint, nullptr), Duration::zero());
  shared_.table.remove(connection->id);
  if (connection->end()) events_.on_lost(connection->id, std::move(why));
}

void Engine::on_welcome(const Control& control) {
  const auto welcome = [&](Outgoing& connection) {
    if (connection.id.value == control.envelope.connection &&
        connection.peer.instance == control.envelope.sender)
      connection.welcomed = true;
  };
  const auto found = outgoing_.find({control.envelope.connection});
  if (found != outgoing_.end()) {
    welcome(*found->second);
    log_debug("ucx", "connection {} is up, {} frames wait", to_string(found->first),
              found->second->backlog.size());
    pump(*found->second);
  }
  for (const Leaving& leaving : leaving_)
    if (leaving.outgoing != nullptr) welcome(*leaving.outgoing);
}

// Also from another instance than was meant: that is one reason to refuse.
void Engine::on_refusal(const Control& control) {
  for (const Leaving& leaving : leaving_)
    if (leaving.outgoing != nullptr && leaving.outgoing->id.value == control.envelope.connection)
      leaving.outgoing->welcomed = true;  // as good as: the peer has finished setting up
  const auto found = outgoing_.find({control.envelope.connection});
  if (found == outgoing_.end()) return;
  const ByteSpan data = control.data;
  std::string reason(as_text(data.first(std::min(data.size(), kReasonMax))));
  // For logs: nothing that could break a line.
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  lose(found->second, {ErrorCode::kUnavailable, "the peer refused: " + reason});
}

void Engine::on_credit(const Control& control) {
  const auto found = outgoing_.find({control.envelope.connection});
  if (found == outgoing_.end()) return;
  const std::shared_ptr<Outgoing> connection = found->second;
  if (connection->peer.instance != control.envelope.sender) return;
  const uint64_t released = control.envelope.number;
  if (released > connection->last_number) {
    Error why{ErrorCode::kInvalidFrame,
              fmt::format("credit for {} frames of {} sent", released, connection->last_number)};
    garbage(why);
    return lose(connection, std::move(why));
  }
  if (released <= connection->released.load()) return;
  connection->released.store(released);
  if (connection->credit_wanted.exchange(false)) events_.on_credit(connection->id);
}

}  // namespace troupe::ucx

#include "actors/dataplane/frame_router.h"

#include <set>
#include <utility>

#include "base/log.h"

namespace troupe {

FrameRouter::FrameRouter(size_t waiting_max) : waiting_max_(waiting_max) {}
FrameRouter::~FrameRouter() = default;

void FrameRouter::attach(std::shared_ptr<Transport> transport) {
  const std::lock_guard lock(mutex_);
  transport_ = std::move(transport);
}

void FrameRouter::detach() {
  std::map<Incarnation, std::shared_ptr<FrameSink>> sinks;
  std::map<std::string, Connection> connections;
  std::shared_ptr<Transport> transport;
  {
    const std::lock_guard lock(sinks_mutex_);
    sinks.swap(sinks_);
  }
  const std::lock_guard lock(mutex_);
  connections.swap(connections_);
  transport.swap(transport_);
}

void FrameRouter::bind(Incarnation incarnation, std::shared_ptr<FrameSink> sink) {
  const std::lock_guard lock(sinks_mutex_);
  sinks_.insert_or_assign(incarnation, std::move(sink));
}

void FrameRouter::unbind(Incarnation incarnation) {
  std::shared_ptr<FrameSink> last;  // may end with this call: outside the lock
  const std::lock_guard lock(sinks_mutex_);
  const auto found = sinks_.find(incarnation);
  if (found == sinks_.end()) return;
  last = std::move(found->second);
  sinks_.erase(found);
}

void FrameRouter::on_frame(Frame frame) {
  std::shared_ptr<FrameSink> sink;
  {
    const std::lock_guard lock(sinks_mutex_);
    const auto found = sinks_.find(frame.header.receiver);
    if (found != sinks_.end()) sink = found->second;
  }
  if (sink == nullptr) {
    ++unroutable_;
    return;
  }
  sink->on_frame(std::make_shared<Frame>(std::move(frame)));
}

void FrameRouter::send(ByteSpan address, FramePtr frame) {
  std::vector<FramePtr> rubbish;  // leases of dropped frames are let go of unlocked
  const std::lock_guard lock(mutex_);
  rubbish.swap(rubbish_);
  if (transport_ == nullptr) return;
  const std::string key{as_text(address)};
  auto found = connections_.find(key);
  if (found == connections_.end()) {
    auto opened = transport_->connect(address);
    if (!opened.ok()) {
      ++dropped_;
      log_error("router", "cannot connect: {}", to_string(opened.error()));
      return;
    }
    found = connections_.emplace(key, Connection{opened.value(), {}}).first;
  }
  Connection& connection = found->second;
  if (connection.waiting.size() >= waiting_max_) {
    ++dropped_;
    log_error("router", "{} frames wait for credit already, limit {}: one dropped",
              connection.waiting.size(), waiting_max_);
    return;
  }
  connection.waiting.push_back(std::move(frame));
  flush(connection);
}

void FrameRouter::flush(Connection& connection) {
  while (!connection.waiting.empty()) {
    const SendOutcome outcome = transport_->send(connection.id, *connection.waiting.front());
    if (outcome == SendOutcome::kNoCredit) return;
    if (outcome == SendOutcome::kClosed) {
      drop_waiting(connection);  // on_lost is on its way and forgets the connection
      return;
    }
    rubbish_.push_back(std::move(connection.waiting.front()));
    connection.waiting.pop_front();
  }
}

void FrameRouter::drop_waiting(Connection& connection) {
  dropped_ += connection.waiting.size();
  for (FramePtr& frame : connection.waiting) rubbish_.push_back(std::move(frame));
  connection.waiting.clear();
}

void FrameRouter::keep(const std::vector<std::vector<std::byte>>& addresses) {
  std::set<std::string> kept;
  for (const auto& address : addresses) kept.emplace(as_text(address));
  std::vector<FramePtr> rubbish;
  const std::lock_guard lock(mutex_);
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    if (kept.contains(entry->first)) {
      ++entry;
      continue;
    }
    drop_waiting(entry->second);
    if (transport_ != nullptr) transport_->close(entry->second.id);
    entry = connections_.erase(entry);
  }
  rubbish.swap(rubbish_);
}

void FrameRouter::on_lost(ConnectionId connection, Error why) {
  std::vector<FramePtr> rubbish;
  const std::lock_guard lock(mutex_);
  for (auto entry = connections_.begin(); entry != connections_.end(); ++entry) {
    if (entry->second.id != connection) continue;
    drop_waiting(entry->second);
    log_warning("router", "connection {} lost: {}", to_string(connection), to_string(why));
    connections_.erase(entry);
    rubbish.swap(rubbish_);
    return;
  }
}

void FrameRouter::on_credit(ConnectionId connection) {
  std::vector<FramePtr> rubbish;
  const std::lock_guard lock(mutex_);
  if (transport_ != nullptr)
    for (auto& [address, one] : connections_)
      if (one.id == connection) flush(one);
  rubbish.swap(rubbish_);
}

void FrameRouter::on_garbage(Error what) {
  log_warning("router", "dropped bytes: {}", to_string(what));
}

RouterFigures FrameRouter::figures() const {
  const std::lock_guard lock(mutex_);
  return {transport_ == nullptr ? TransportFigures{} : transport_->figures(), unroutable_,
          dropped_};
}

}  // namespace troupe

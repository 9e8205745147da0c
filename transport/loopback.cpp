#include "transport/loopback.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"

namespace troupe {
namespace {

constexpr uint64_t kAddressMagic = 0x6b63616270616f6c;  // "loapback"

struct LoopbackAddress {
  uint64_t magic;
  uint64_t attachment;
};

}  // namespace

// Everything the transports of a hub share. Leases hold it too, so it lives as long as the last
// received frame.
class LoopbackHub::State : public std::enable_shared_from_this<State> {
 public:
  void start_thread() {
    thread_ = std::thread([this] { run(); });
  }
  void stop();

  uint64_t attach(TransportEvents& events);
  void detach(uint64_t attachment);
  ConnectionId connect(uint64_t from, uint64_t to);
  SendOutcome send(uint64_t from, ConnectionId connection, Frame& frame);
  void close(uint64_t from, ConnectionId connection);
  void release(ConnectionId connection);
  TransportFigures figures(uint64_t attachment);
  size_t pump(size_t events_max);

 private:
  struct Attachment {
    TransportEvents* events = nullptr;
    TransportFigures figures;
  };
  struct Connection {
    uint64_t from = 0, to = 0;
    uint32_t unreleased = 0;  // queued or held by the receiver
    bool credit_wanted = false;
  };
  enum class EventKind : uint8_t { kFrame, kLost, kCredit };
  struct Event {
    EventKind kind;
    uint64_t target;
    ConnectionId connection;
    Frame frame;
    Error error;
  };

  void run();
  bool deliver_next(std::unique_lock<std::mutex>& lock);
  void hand_over(TransportEvents& events, Event& event);
  void lose(std::map<ConnectionId, Connection>::iterator connection, Error why);
  void add_lease(ConnectionId connection, Frame& frame);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Attachment> attachments_;
  std::map<ConnectionId, Connection> connections_;
  std::deque<Event> queue_;
  uint64_t last_attachment_ = 0, last_connection_ = 0;
  uint64_t delivering_to_ = 0;
  std::thread::id delivering_thread_;
  bool stopped_ = false;
  std::thread thread_;
};

void LoopbackHub::State::stop() {
  std::deque<Event> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(queue_);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

uint64_t LoopbackHub::State::attach(TransportEvents& events) {
  const std::lock_guard lock(mutex_);
  attachments_[++last_attachment_].events = &events;
  return last_attachment_;
}

void LoopbackHub::State::detach(uint64_t attachment) {
  std::unique_lock lock(mutex_);
  attachments_.erase(attachment);
  for (auto i = connections_.begin(); i != connections_.end();) {
    const auto next = std::next(i);
    if (i->second.from == attachment) {
      connections_.erase(i);
    } else if (i->second.to == attachment) {
      lose(i, {ErrorCode::kUnavailable, "the peer's transport was destroyed"});
    }
    i = next;
  }
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return delivering_to_ != attachment || delivering_thread_ == std::this_thread::get_id();
  });
}

ConnectionId LoopbackHub::State::connect(uint64_t from, uint64_t to) {
  const std::lock_guard lock(mutex_);
  const ConnectionId id{++last_connection_};
  const auto [added, _] = connections_.emplace(id, Connection{from, to, 0, false});
  if (!attachments_.contains(to))
    lose(added, {ErrorCode::kUnavailable, "no transport has this address any more"});
  return id;
}

void LoopbackHub::State::lose(std::map<ConnectionId, Connection>::iterator connection, Error why) {
  queue_.push_back(
      {EventKind::kLost, connection->second.from, connection->first, {}, std::move(why)});
  connections_.erase(connection);
  changed_.notify_all();
}

SendOutcome LoopbackHub::State::send(uint64_t from, ConnectionId connection, Frame& frame) {
  const Result<void> valid = check_frame(frame.header, frame.payload.size());
  std::shared_ptr<void> lease;  // of a frame that is passed on; let go of outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection);
  if (found == connections_.end() || found->second.from != from) return SendOutcome::kClosed;
  if (!valid.ok()) {
    log_error("loopback", "connection {}: a frame of ours breaks the rules: {}",
              to_string(connection), to_string(valid.error()));
    lose(found, valid.error());
    return SendOutcome::kClosed;
  }
  if (found->second.unreleased >= kWindow) {
    found->second.credit_wanted = true;
    return SendOutcome::kNoCredit;
  }
  ++found->second.unreleased;
  const auto sender = attachments_.find(from);
  if (sender != attachments_.end()) {
    ++sender->second.figures.frames_sent;
    sender->second.figures.bytes_sent += frame.payload.size();
  }
  lease = std::move(frame.lease);
  queue_.push_back({EventKind::kFrame, found->second.to, connection, std::move(frame), {}});
  changed_.notify_all();
  return SendOutcome::kAccepted;
}

void LoopbackHub::State::close(uint64_t from, ConnectionId connection) {
  std::deque<Frame> dropped;  // freed after the lock: a payload may be a lease of this hub
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection);
  const bool open = found != connections_.end();
  if (open && found->second.from != from) return;
  if (open) connections_.erase(found);
  std::erase_if(queue_, [&](Event& event) {
    if (event.connection != connection) return false;
    if (event.kind == EventKind::kFrame) {
      if (!open) return false;
      dropped.push_back(std::move(event.frame));
      return true;
    }
    return event.target == from;
  });
}

void LoopbackHub::State::release(ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  --found->second.unreleased;
  if (!std::exchange(found->second.credit_wanted, false)) return;
  queue_.push_back({EventKind::kCredit, found->second.from, connection, {}, {}});
  changed_.notify_all();
}

TransportFigures LoopbackHub::State::figures(uint64_t attachment) {
  const std::lock_guard lock(mutex_);
  const auto found = attachments_.find(attachment);
  return found == attachments_.end() ? TransportFigures{} : found->second.figures;
}

// The payload's bytes stay the sender's; what is new is that letting go of them returns the credit.
void LoopbackHub::State::add_lease(ConnectionId connection, Frame& frame) {
  struct Lease {
    std::shared_ptr<State> state;
    ConnectionId connection;
    SharedBuffer payload;
    ~Lease() { state->release(connection); }
  };
  const auto lease = std::make_shared<Lease>();
  lease->state = shared_from_this();
  lease->connection = connection;
  lease->payload = std::move(frame.payload);
  frame.payload = SharedBuffer::wrap(
      std::shared_ptr<std::byte>(lease, lease->payload.mutable_data()), lease->payload.size());
  frame.lease = lease;
}

void LoopbackHub::State::hand_over(TransportEvents& events, Event& event) {
  switch (event.kind) {
    case EventKind::kFrame:
      add_lease(event.connection, event.frame);
      events.on_frame(std::move(event.frame));
      return;
    case EventKind::kLost:
      events.on_lost(event.connection, std::move(event.error));
      return;
    case EventKind::kCredit:
      events.on_credit(event.connection);
      return;
  }
}

// Takes the next event and delivers it, unlocked. False if there was none.
bool LoopbackHub::State::deliver_next(std::unique_lock<std::mutex>& lock) {
  if (queue_.empty()) return false;
  {
    Event event = std::move(queue_.front());
    queue_.pop_front();
    const auto target = attachments_.find(event.target);
    const bool alive = target != attachments_.end() &&
                       (event.kind != EventKind::kFrame || connections_.contains(event.connection));
    TransportEvents* events = alive ? target->second.events : nullptr;
    if (alive && event.kind == EventKind::kFrame) {
      ++target->second.figures.frames_received;
      target->second.figures.bytes_received += event.frame.payload.size();
    }
    delivering_to_ = alive ? event.target : 0;
    delivering_thread_ = std::this_thread::get_id();
    lock.unlock();
    if (events != nullptr) hand_over(*events, event);
  }  // what was not taken is freed here, unlocked
  lock.lock();
  delivering_to_ = 0;
  changed_.notify_all();
  return true;
}

size_t LoopbackHub::State::pump(size_t events_max) {
  std::unique_lock lock(mutex_);
  size_t delivered = 0;
  while (delivered < events_max && deliver_next(lock)) ++delivered;
  return delivered;
}

void LoopbackHub::State::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (!deliver_next(lock)) changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
  }
}

class LoopbackHub::Attached final : public Transport {
 public:
  Attached(std::shared_ptr<State> state, TransportEvents& events)
      : state_(std::move(state)), attachment_(state_->attach(events)) {}
  ~Attached() override { state_->detach(attachment_); }

  std::vector<std::byte> address() const override {
    const LoopbackAddress address{kAddressMagic, attachment_};
    const auto* bytes = reinterpret_cast<const std::byte*>(&address);
    return {bytes, bytes + sizeof address};
  }

  Result<ConnectionId> connect(ByteSpan address) override {
    LoopbackAddress to{};
    if (address.size() != sizeof to)
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("loopback address of {} bytes, expected {}", address.size(), sizeof to)};
    std::memcpy(&to, address.data(), sizeof to);
    if (to.magic != kAddressMagic)
      return Error{ErrorCode::kInvalidArgument, "not an address of a loopback transport"};
    return state_->connect(attachment_, to.attachment);
  }

  SendOutcome send(ConnectionId connection, Frame& frame) override {
    return state_->send(attachment_, connection, frame);
  }
  void close(ConnectionId connection) override { state_->close(attachment_, connection); }
  TransportFigures figures() const override { return state_->figures(attachment_); }

 private:
  std::shared_ptr<State> state_;
  uint64_t attachment_;
};

LoopbackHub::LoopbackHub(LoopbackPump pump) : state_(std::make_shared<State>()) {
  if (pump == LoopbackPump::kThread) state_->start_thread();
}

LoopbackHub::~LoopbackHub() {
  state_->stop();
}

std::unique_ptr<Transport> LoopbackHub::attach(TransportEvents& events) {
  return std::make_unique<Attached>(state_, events);
}

size_t LoopbackHub::pump(size_t events_max) {
  return state_->pump(events_max);
}

}  // namespace troupe

// An incoming connection: frames in order, credits back. Leases of its frames live anywhere and
// tell the progress thread, through the mailbox, when there is credit to return.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "transport/transport.h"
#include "transport/ucx/endpoint.h"

namespace troupe::ucx {

// Who opened it, and under which number.
struct PeerConnection {
  uint64_t instance = 0, connection = 0;
  friend auto operator<=>(const PeerConnection&, const PeerConnection&) = default;
};

// A frame's bytes as they arrived: header, padding, payload in one pooled buffer.
struct Arrived {
  Envelope envelope;
  std::shared_ptr<std::byte> memory;
};

// Puts what arrives early in order. Holds at most kWindow frames.
class Reordering {
 public:
  // False if the number is not of the next kWindow, or was taken before: no honest sender does
  // that.
  bool place(Arrived arrived) {
    const uint64_t number = arrived.envelope.number;
    if (number < next_ || number - next_ >= kWindow || slots_[number % kWindow]) return false;
    slots_[number % kWindow] = std::move(arrived);
    return true;
  }
  // The next in order, if it is there.
  std::optional<Arrived> take() {
    std::optional<Arrived>& slot = slots_[next_ % kWindow];
    if (!slot) return std::nullopt;
    ++next_;
    return std::exchange(slot, std::nullopt);
  }
  uint64_t delivered() const { return next_ - 1; }

 private:
  std::array<std::optional<Arrived>, kWindow> slots_;
  uint64_t next_ = 1;
};

// Counts what was released. Outlives the connection: leases hold it.
class CreditReturn {
 public:
  virtual ~CreditReturn() = default;

  // Any thread: a lease is gone.
  void release() {
    const uint64_t released = released_.fetch_add(1) + 1;
    if (urgent_.load() || released - returned_.load() >= kBatch) announce();
  }

  // The progress thread. Half of the window is used up at the sender: from now on nothing is held
  // back.
  void hurry() {
    urgent_.store(true);
    if (released_.load() > returned_.load()) announce();
  }
  // The total to tell the sender, or nothing if it knows already.
  std::optional<uint64_t> to_return() {
    announced_.store(false);
    const uint64_t released = released_.load();
    if (released == returned_.load()) return std::nullopt;
    returned_.store(released);
    urgent_.store(false);
    return released;
  }
  uint64_t released() const { return released_.load(); }

 protected:
  // Makes the progress thread call to_return().
  virtual void tell() = 0;

 private:
  static constexpr uint64_t kBatch = kWindow / 4;
  void announce() {
    if (!announced_.exchange(true)) tell();
  }

  std::atomic<uint64_t> released_{0}, returned_{0};
  std::atomic<bool> urgent_{false}, announced_{false};
};

struct Incoming {
  explicit Incoming(PeerConnection connection, Address address)
      : key(connection), peer(std::move(address)) {}

  const PeerConnection key;
  const Address peer;
  std::shared_ptr<Endpoint> endpoint;  // back to the sender; none until the hello was answered
  std::shared_ptr<CreditReturn> credits;
  Reordering frames;
  uint64_t started = 0;  // frames whose envelope came in
  bool ended = false;
};

}  // namespace troupe::ucx

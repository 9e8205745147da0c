// An outgoing connection: what senders' threads and the progress thread share of it, and what only
// the latter touches.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/ids.h"
#include "base/time.h"
#include "transport/transport.h"
#include "transport/ucx/endpoint.h"

namespace troupe::ucx {

struct Outgoing {
  Outgoing(ConnectionId connection, Address address) : id(connection), peer(std::move(address)) {}

  // Takes one credit; false if the receiver holds kWindow frames. `urgent` tells that half of them
  // are used up.
  bool take_credit(bool& urgent) {
    uint64_t used = taken.load();
    while (true) {
      const uint64_t unreleased = used - released.load();
      if (unreleased >= kWindow) return false;
      urgent = unreleased >= kWindow / 2;
      if (taken.compare_exchange_weak(used, used + 1)) return true;
    }
  }
  // Whoever ends it first gets true: close() by its owner, or the progress thread, which then
  // reports the loss.
  bool end() { return !ended.exchange(true); }

  const ConnectionId id;
  const Address peer;

  // Any thread.
  std::atomic<bool> ended{false};
  std::atomic<uint64_t> taken{0};     // frames accepted since the beginning
  std::atomic<uint64_t> released{0};  // of these, released by the receiver
  std::atomic<bool> credit_wanted{false};

  // The progress thread only.
  std::shared_ptr<Endpoint> endpoint;
  std::deque<Message> backlog;  // at most kWindow
  uint64_t last_number = 0;
  bool welcomed = false;
  Instant welcome_deadline{};
};

}  // namespace troupe::ucx

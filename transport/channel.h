// What makes a link reliable, as values: numbers, acknowledgements, a window, and calls that wait
// for answers. No I/O, no clock, no thread: a link feeds it what arrived and asks it what to do,
// tests feed it a wire that loses, repeats and reorders. One owner at a time; nothing here locks.
//
// The protocol is go-back-N: the sender numbers messages 1, 2, … and keeps each until a cumulative
// acknowledgement covers it; the receiver takes exactly the next number, ignores repeats and
// refuses gaps; after a reconnection (or a timeout over a lossy wire) the sender sends everything
// unacknowledged again, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"

namespace troupe {

struct ChannelLimits {
  size_t messages_max = 1024;           // unacknowledged, at least 1
  size_t bytes_max = size_t{64} << 20;  // of all unacknowledged messages together
};

struct ChannelMessage {
  uint64_t number = 0;  // 1, 2, …
  SharedBuffer bytes;
};

class ChannelSender {
 public:
  explicit ChannelSender(ChannelLimits limits = {});

  // Numbers a message and keeps it until it is acknowledged; the returned message is to be sent
  // now, or later by resending `unacknowledged()`. Errors: kResourceExhausted (the window is full;
  // nothing was taken).
  Result<ChannelMessage> push(SharedBuffer bytes);
  // The receiver has everything up to `number`. Older acknowledgements are ignored.
  // Errors: kInvalidFrame (a number that was never sent; nothing changes).
  Result<void> acknowledge(uint64_t number);

  // In order of number: what a new connection has to send again after the peer said what it has.
  const std::deque<ChannelMessage>& unacknowledged() const { return unacknowledged_; }
  size_t unacknowledged_bytes() const { return bytes_; }
  uint64_t last_number() const { return last_; }           // 0: nothing pushed yet
  uint64_t acknowledged() const { return acknowledged_; }  // 0: nothing acknowledged yet

 private:
  ChannelLimits limits_;
  std::deque<ChannelMessage> unacknowledged_;
  size_t bytes_ = 0;
  uint64_t last_ = 0;
  uint64_t acknowledged_ = 0;
};

enum class ChannelVerdict : uint8_t {
  kDeliver,  // the next one: hand it up, once
  kRepeat,   // seen before: drop it, but acknowledge (the acknowledgement may have been lost)
  kGap,      // something before it is missing: drop it; over an ordered stream, drop the connection
};

class ChannelReceiver {
 public:
  // An acknowledgement is due after this many deliveries (at least 1); the link may send one
  // earlier, for example with every message it sends anyway or when it falls idle.
  explicit ChannelReceiver(uint32_t acknowledge_every = 16);

  ChannelVerdict accept(uint64_t number);

  // The cumulative acknowledgement to send: everything up to it was delivered.
  uint64_t acknowledgement() const { return delivered_; }
  // True if the sender should hear now: enough deliveries, or a repeat or gap came in.
  bool acknowledgement_due() const { return due_ || unacknowledged_ >= every_; }
  // True if something was delivered that no acknowledgement has covered: send one before falling
  // idle.
  bool acknowledgement_owed() const { return due_ || unacknowledged_ > 0; }
  // An acknowledgement with the current number was sent.
  void acknowledgement_sent();

 private:
  uint32_t every_;
  uint64_t delivered_ = 0;
  uint32_t unacknowledged_ = 0;
  bool due_ = false;
};

// Calls that wait for an answer. Whoever opens one gets exactly one of: its answer, its deadline,
// or the loss of the link. `Completion` is whatever the owner needs to finish the call (a promise,
// a function).
template <class Completion>
class PendingCalls {
 public:
  explicit PendingCalls(size_t calls_max = 4096) : calls_max_(calls_max) {}

  // A number that was never used before, for the message. Errors: kResourceExhausted (too many are
  // waiting; the completion was not taken).
  Result<uint64_t> open(Completion&& completion, Instant deadline) {
    if (calls_.size() >= calls_max_)
      return Error{ErrorCode::kResourceExhausted,
                   "calls waiting for an answer: " + std::to_string(calls_.size()) + ", limit " +
                       std::to_string(calls_max_)};
    const uint64_t call = ++last_;
    calls_.emplace(call, Call{std::move(completion), deadline});
    deadlines_.emplace(deadline, call);
    return call;
  }

  // The answered call's completion; nothing if it is unknown, answered before, expired or failed.
  std::optional<Completion> answer(uint64_t call) {
    const auto found = calls_.find(call);
    if (found == calls_.end()) return std::nullopt;
    return take(found);
  }

  // Those whose deadline is at or before `now`, earliest first.
  std::vector<Completion> expire(Instant now) {
    std::vector<Completion> expired;
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const auto found = calls_.find(deadlines_.begin()->second);
      TROUPE_CHECK(found != calls_.end(), "every deadline belongs to a waiting call");
      expired.push_back(take(found));
    }
    return expired;
  }

  // The link is gone: all of them, in the order they were opened.
  std::vector<Completion> fail_all() {
    std::vector<Completion> failed;
    failed.reserve(calls_.size());
    for (auto& [call, waiting] : calls_) failed.push_back(std::move(waiting.completion));
    calls_.clear();
    deadlines_.clear();
    return failed;
  }

  // When to call expire() next.
  std::optional<Instant> next_deadline() const {
    if (deadlines_.empty()) return std::nullopt;
    return deadlines_.begin()->first;
  }
  size_t size() const { return calls_.size(); }

 private:
  struct Call {
    Completion completion;
    Instant deadline;
  };
  using Calls = std::map<uint64_t, Call>;

  Completion take(typename Calls::iterator found) {
    deadlines_.erase({found->second.deadline, found->first});
    Completion completion = std::move(found->second.completion);
    calls_.erase(found);
    return completion;
  }

  size_t calls_max_;
  Calls calls_;
  std::set<std::pair<Instant, uint64_t>> deadlines_;
  uint64_t last_ = 0;
};

}  // namespace troupe

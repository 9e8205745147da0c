// A TransportEvents that keeps what happened and lets a test wait for it. Waiting ends with the
// condition; the limit is only there so that a broken transport fails the test instead of hanging
// it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/time.h"
#include "transport/transport.h"

namespace troupe::test {

class RecordedEvents final : public TransportEvents {
 public:
  void on_frame(Frame frame) override {
    note([&] {
      ++frames_seen;
      if (keep_frames) {
        frames.push_back(std::move(frame));
      } else {
        in_order = in_order && frame.header.edge_sequence == ++last_sequence;
      }
    });
  }
  void on_lost(ConnectionId connection, Error why) override {
    note([&] { lost.emplace_back(connection, std::move(why)); });
  }
  void on_credit(ConnectionId connection) override {
    note([&] { credits.push_back(connection); });
  }
  void on_garbage(Error what) override {
    note([&] { garbage.push_back(std::move(what)); });
  }

  // True once `condition()` holds; it is called locked.
  template <class Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 30s, condition);
  }
  // From now on frames are released at once and only their order is checked.
  void only_count_frames() {
    const std::lock_guard lock(mutex);
    keep_frames = false;
  }
  // For while a transport is alive; the fields themselves are for after it, or within wait_for().
  size_t losses() {
    const std::lock_guard lock(mutex);
    return lost.size();
  }
  size_t frames_kept() {
    const std::lock_guard lock(mutex);
    return frames.size();
  }
  // Drops frames without holding the lock: their leases call into a transport.
  void release_frames() {
    std::vector<Frame> dropped;
    const std::lock_guard lock(mutex);
    dropped.swap(frames);
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool keep_frames = true;
  std::vector<Frame> frames;
  size_t frames_seen = 0;
  bool in_order = true;  // with keep_frames off: edge sequences were 1, 2, 3, …
  uint64_t last_sequence = 0;
  std::vector<std::pair<ConnectionId, Error>> lost;
  std::vector<ConnectionId> credits;
  std::vector<Error> garbage;

 private:
  template <class Act>
  void note(Act act) {
    const std::lock_guard lock(mutex);
    act();
    changed.notify_all();
  }
};

// Sends, waiting for credit as an actor would.
inline SendOutcome send_all(Transport& transport, RecordedEvents& events, ConnectionId connection,
                            Frame frame) {
  while (true) {
    size_t credits = 0;
    {
      const std::lock_guard lock(events.mutex);
      credits = events.credits.size();
    }
    const SendOutcome outcome = transport.send(connection, frame);
    if (outcome != SendOutcome::kNoCredit) return outcome;
    if (!events.wait_for([&] { return events.credits.size() > credits || !events.lost.empty(); }))
      return outcome;
  }
}

}  // namespace troupe::test

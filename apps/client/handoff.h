// One generate call's tokens on their way from the event loop to the thread that called.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/rpc/requests.h"

namespace troupe::rpc {

struct GenerateResult {
  Result<GenerateEnd> end;  // never of reason kFailed
  uint32_t resumptions = 0;
};

class Handoff {
 public:
  // Above this many pieces the daemon's next push waits until the caller has taken them.
  static constexpr size_t kQueuedMax = 1024;

  // The loop's side. False: the queue is full; the caller's next take() says so.
  bool offer(std::vector<GeneratedPiece> pieces) {
    const std::lock_guard lock(mutex_);
    for (auto& piece : pieces) pieces_.push_back(std::move(piece));
    changed_.notify_one();
    full_ = pieces_.size() >= kQueuedMax;
    return !full_;
  }
  // The first result counts.
  void finish(GenerateResult result) {
    const std::lock_guard lock(mutex_);
    if (!result_) result_ = std::move(result);
    changed_.notify_one();
  }

  // The caller's side.
  struct Batch {
    std::vector<GeneratedPiece> pieces;
    std::optional<GenerateResult> result;  // with the last pieces
    bool was_full = false;                 // tell the loop that there is room again
  };
  Batch take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !pieces_.empty() || result_.has_value(); });
    return {std::exchange(pieces_, {}), result_, std::exchange(full_, false)};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GeneratedPiece> pieces_;
  std::optional<GenerateResult> result_;
  bool full_ = false;
};

// The loop's end of a handoff. Whatever happens to it, the caller gets a result.
class HandoffWriter {
 public:
  explicit HandoffWriter(std::shared_ptr<Handoff> handoff) : handoff_(std::move(handoff)) {}
  ~HandoffWriter() { handoff_->finish({Error{ErrorCode::kCancelled, "the client was closed"}, 0}); }
  HandoffWriter(const HandoffWriter&) = delete;
  HandoffWriter& operator=(const HandoffWriter&) = delete;
  Handoff& operator*() { return *handoff_; }
  Handoff* operator->() { return handoff_.get(); }

 private:
  const std::shared_ptr<Handoff> handoff_;
};

}  // namespace troupe::rpc

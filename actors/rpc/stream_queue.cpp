#include "actors/rpc/stream_queue.h"

#include <fmt/format.h>

namespace troupe::rpc {

void StreamQueue::piece(GeneratedPiece piece) {
  const std::lock_guard lock(mutex_);
  if (closed_ || end_ || piece.index < next_) return;
  if (piece.index > next_) {
    fail_locked({ErrorCode::kInternal,
                 fmt::format("token {} came where token {} was due", piece.index, next_)});
  } else if (pieces_.size() - front_ >= options_.pieces_max) {
    fail_locked({ErrorCode::kUnavailable,
                 fmt::format("the client is {} tokens behind, limit {}; resume after token {}",
                             pieces_.size() - front_, options_.pieces_max, next_)});
  } else {
    ++next_;
    pieces_.push_back(std::move(piece));
  }
  wake_locked();
}

void StreamQueue::end(GenerateEnd end) {
  const std::lock_guard lock(mutex_);
  ended_by_producer_ = true;
  if (closed_ || end_) return;
  end_ = std::move(end);
  wake_locked();
}

void StreamQueue::fail_locked(Error error) {
  GenerateEnd end;
  end.reason = FinishReason::kFailed;
  end.error = std::move(error);
  end_ = std::move(end);
}

void StreamQueue::wake_locked() {
  if (wake_posted_) return;
  wake_posted_ = true;
  mailbox_->post([self = shared_from_this()] { self->wake_on_loop(); });
}

void StreamQueue::wake_on_loop() {
  {
    const std::lock_guard lock(mutex_);
    wake_posted_ = false;
  }
  KJ_IF_MAYBE (waiter, waiter_) {
    (*waiter)->fulfill();
    waiter_ = nullptr;
  }
}

kj::Promise<void> StreamQueue::ready() {
  const std::lock_guard lock(mutex_);
  if (front_ < pieces_.size() || end_) return kj::READY_NOW;
  auto pair = kj::newPromiseAndFulfiller<void>();
  waiter_ = kj::mv(pair.fulfiller);
  return kj::mv(pair.promise);
}

StreamQueue::Batch StreamQueue::take() {
  Batch batch;
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  while (front_ < pieces_.size() && batch.pieces.size() < kBatchPiecesMax &&
         bytes <= kBatchTextBytesMax) {
    bytes += pieces_[front_].text.size();
    batch.pieces.push_back(std::move(pieces_[front_++]));
  }
  if (front_ == pieces_.size()) {
    pieces_.clear();
    front_ = 0;
    if (batch.pieces.empty()) batch.end = end_;
  }
  return batch;
}

bool StreamQueue::close() {
  waiter_ = nullptr;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  pieces_.clear();
  front_ = 0;
  return !ended_by_producer_;
}

}  // namespace troupe::rpc

// A stream that may face strangers: what Cap'n Proto's RPC 0.9 lacks, put between it and the
// socket.
// - Bytes are checked by FrameCheck before the library sees them.
// - While the queue of outgoing messages is long, nothing more is read: a peer that calls and never
// reads is
//   slowed down by TCP instead of filling our memory (25 MB of calls once became 1.46 GB of
//   answers).
// - A write that makes no progress, and a message whose rest does not come, end the connection.
#pragma once

#include <kj/async-io.h>
#include <kj/timer.h>

#include <functional>

#include "actors/rpc/frame_check.h"
#include "base/time.h"

namespace troupe::rpc {

inline kj::Duration to_kj(Duration duration) {
  return duration.count() * kj::NANOSECONDS;
}

struct GuardOptions {
  FrameLimits frames;
  size_t backlog_max = 256;        // queued outgoing messages above which reading pauses
  Duration write_stall_max = 30s;  // for one write
  Duration frame_wait_max = 30s;   // for the rest of a message that has begun
};

class GuardedStream final : public kj::AsyncIoStream {
 public:
  GuardedStream(kj::Own<kj::AsyncIoStream> inner, kj::Timer& timer, GuardOptions options);

  FrameCheck& frames() { return frames_; }
  // How many messages wait to be written; without it the backlog is not bounded.
  void watch_backlog(std::function<size_t()> backlog) { backlog_ = std::move(backlog); }
  // Called once, with the reason, when the guard ends the connection.
  void when_refused(std::function<void(const Error&)> refused) { refused_ = std::move(refused); }

  kj::Promise<size_t> tryRead(void* buffer, size_t min_bytes, size_t max_bytes) override;
  kj::Promise<void> write(const void* buffer, size_t size) override;
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override;
  kj::Promise<void> whenWriteDisconnected() override { return inner_->whenWriteDisconnected(); }
  void shutdownWrite() override { inner_->shutdownWrite(); }
  void abortRead() override { inner_->abortRead(); }
  void getsockopt(int level, int option, void* value, kj::uint* size) override {
    inner_->getsockopt(level, option, value, size);
  }
  void setsockopt(int level, int option, const void* value, kj::uint size) override {
    inner_->setsockopt(level, option, value, size);
  }
  void getsockname(struct sockaddr* address, kj::uint* size) override {
    inner_->getsockname(address, size);
  }
  void getpeername(struct sockaddr* address, kj::uint* size) override {
    inner_->getpeername(address, size);
  }
  kj::Maybe<int> getFd() const override { return inner_->getFd(); }

 private:
  kj::Promise<size_t> read_checked(void* buffer, size_t min_bytes, size_t max_bytes);
  kj::Promise<void> bounded(kj::Promise<void> write);
  kj::Exception refuse(Error error);

  kj::Own<kj::AsyncIoStream> inner_;
  kj::Timer& timer_;
  GuardOptions options_;
  FrameCheck frames_;
  std::function<size_t()> backlog_ = [] { return size_t{0}; };
  std::function<void(const Error&)> refused_ = [](const Error&) {};
};

}  // namespace troupe::rpc

#include "actors/rpc/guarded_stream.h"

#include <fmt/format.h>

namespace troupe::rpc {
namespace {

// How often a paused reader looks whether the backlog has gone down.
constexpr Duration kBacklogPoll = 5ms;

}  // namespace

GuardedStream::GuardedStream(kj::Own<kj::AsyncIoStream> inner, kj::Timer& timer,
                             GuardOptions options)
    : inner_(kj::mv(inner)), timer_(timer), options_(options), frames_(options.frames) {}

kj::Exception GuardedStream::refuse(Error error) {
  refused_(error);
  refused_ = [](const Error&) {};
  return kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__,
                       kj::heapString(error.message.data(), error.message.size()));
}

kj::Promise<size_t> GuardedStream::tryRead(void* buffer, size_t min_bytes, size_t max_bytes) {
  if (backlog_() <= options_.backlog_max) return read_checked(buffer, min_bytes, max_bytes);
  return timer_.afterDelay(to_kj(kBacklogPoll)).then([this, buffer, min_bytes, max_bytes] {
    return tryRead(buffer, min_bytes, max_bytes);
  });
}

kj::Promise<size_t> GuardedStream::read_checked(void* buffer, size_t min_bytes, size_t max_bytes) {
  auto read = kj::evalNow([&] { return inner_->tryRead(buffer, min_bytes, max_bytes); });
  if (frames_.inside_frame()) {
    // A cancelled read loses bytes, so this connection ends here, whatever happens.
    read = read.exclusiveJoin(
        timer_.afterDelay(to_kj(options_.frame_wait_max)).then([this]() -> kj::Promise<size_t> {
          return refuse({ErrorCode::kDeadlineExceeded,
                         fmt::format("the rest of a message did not come within {} s",
                                     to_seconds(options_.frame_wait_max))});
        }));
  }
  return read.then([this, buffer](size_t size) -> kj::Promise<size_t> {
    auto verdict = frames_.feed({static_cast<const std::byte*>(buffer), size});
    if (!verdict.ok()) return refuse(verdict.error());
    return size;
  });
}

kj::Promise<void> GuardedStream::write(const void* buffer, size_t size) {
  return bounded(kj::evalNow([&] { return inner_->write(buffer, size); }));
}

kj::Promise<void> GuardedStream::write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) {
  return bounded(kj::evalNow([&] { return inner_->write(pieces); }));
}

kj::Promise<void> GuardedStream::bounded(kj::Promise<void> write) {
  return write.exclusiveJoin(
      timer_.afterDelay(to_kj(options_.write_stall_max)).then([this]() -> kj::Promise<void> {
        // The RPC system learns of a dead connection from its reads.
        inner_->abortRead();
        return refuse(
            {ErrorCode::kDeadlineExceeded,
             fmt::format("the peer took nothing for {} s", to_seconds(options_.write_stall_max))});
      }));
}

}  // namespace troupe::rpc

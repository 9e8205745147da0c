// One generate call on the event loop: asks, and asks again for the rest, until the request has
// ended.
#pragma once

#include <kj/async.h>

#include <functional>
#include <memory>

#include "apps/client/handoff.h"
#include "apps/client/link.h"

namespace troupe::rpc {

class Generation {
 public:
  // `over` is called once, when the result has been handed off; it must not destroy the generation
  // at once.
  Generation(Connector& connector, kj::Timer& timer, const ClientOptions& options,
             GenerateCall call, std::shared_ptr<HandoffWriter> handoff, std::function<void()> over);
  ~Generation() noexcept;

  const RequestId& id() const { return call_.id; }
  // The caller wants no more. Tells the cluster, waits a moment for its word, and ends.
  void cancel();
  // Somebody else has cancelled the request by its id: do not ask again if the connection is lost.
  void expect_cancellation() { cancel_expected_ = true; }
  // The caller has taken what was queued.
  void drained();

 private:
  class Sink;
  // What a sink knows of its generation; emptied when the attempt that made it is over.
  struct Attachment {
    Generation* generation = nullptr;
  };

  kj::Promise<void> run();
  kj::Promise<Result<GenerateEnd>> ask(std::shared_ptr<Link> link);
  kj::Promise<void> judge(Result<GenerateEnd> result);
  kj::Promise<void> receive(capnp::List<schema::Piece>::Reader pieces);
  void finish(Result<GenerateEnd> end);

  Connector& connector_;
  kj::Timer& timer_;
  const ClientOptions options_;
  GenerateCall call_;  // `after` moves on with every piece
  const std::shared_ptr<HandoffWriter> handoff_;
  std::function<void()> over_;

  bool finished_ = false;
  bool cancelled_ = false;
  bool cancel_expected_ = false;
  uint32_t resumptions_ = 0;
  bool cut_off_ = false;  // since cut_off_since_
  kj::TimePoint cut_off_since_;
  kj::TimePoint attempt_began_;
  Duration backoff_;

  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> room_;  // a push that waits for the caller
  std::shared_ptr<Attachment> attachment_;
  kj::Promise<void> running_;
  kj::Promise<void> cancelling_;
};

}  // namespace troupe::rpc

// An answer that another thread owes to the event loop: a callback for them, a promise for us.
#pragma once

#include <kj/async.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "actors/rpc/event_loop.h"

namespace troupe::rpc {

// The callback may be called from any thread, once; what comes later is ignored. If all its copies
// are destroyed without a call, the promise gets an error instead of waiting for ever.
template <class T>
class OwedAnswer {
 public:
  // Touched on the loop's thread only, so that the fulfiller dies there.
  struct Slot {
    kj::Maybe<kj::Own<kj::PromiseFulfiller<Result<T>>>> fulfiller;
    ~Slot() noexcept {}
  };

  OwedAnswer(std::shared_ptr<LoopMailbox> mailbox, std::shared_ptr<Slot> slot)
      : mailbox_(std::move(mailbox)), slot_(std::move(slot)) {}
  OwedAnswer(const OwedAnswer&) = delete;
  OwedAnswer& operator=(const OwedAnswer&) = delete;
  ~OwedAnswer() { give(Error{ErrorCode::kInternal, "the request was dropped without an answer"}); }

  void give(Result<T> answer) {
    if (given_.exchange(true)) return;
    mailbox_->post([slot = slot_, answer = std::move(answer)]() mutable {
      KJ_IF_MAYBE (fulfiller, slot->fulfiller) {
        (*fulfiller)->fulfill(std::move(answer));
      }
    });
  }

 private:
  const std::shared_ptr<LoopMailbox> mailbox_;
  const std::shared_ptr<Slot> slot_;
  std::atomic<bool> given_{false};
};

template <class T>
struct Question {
  kj::Promise<Result<T>> promise;
  std::function<void(Result<T>)> answer;
};

template <class T>
Question<T> make_question(const std::shared_ptr<LoopMailbox>& mailbox) {
  auto pair = kj::newPromiseAndFulfiller<Result<T>>();
  auto slot = std::make_shared<typename OwedAnswer<T>::Slot>();
  slot->fulfiller = kj::mv(pair.fulfiller);
  auto owed = std::make_shared<OwedAnswer<T>>(mailbox, slot);
  return {pair.promise.attach(kj::defer([slot] { slot->fulfiller = nullptr; })),
          [owed = std::move(owed)](Result<T> answer) { owed->give(std::move(answer)); }};
}

}  // namespace troupe::rpc

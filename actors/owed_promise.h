// A response promise that is always answered. CAF 0.17 leaves a requester waiting for its whole
// timeout when a promise is dropped or its actor dies; whoever holds an OwedPromise owes an answer,
// and if it is destroyed unanswered the requester gets an error at once.
#pragma once

#include <caf/error.hpp>
#include <caf/sec.hpp>
#include <caf/typed_response_promise.hpp>

#include <utility>

namespace troupe {

template <class Reply>
class OwedPromise {
 public:
  OwedPromise() = default;
  explicit OwedPromise(caf::typed_response_promise<Reply> promise)
      : promise_(std::move(promise)), owed_(true) {}
  OwedPromise(OwedPromise&& other) noexcept
      : promise_(std::move(other.promise_)), owed_(std::exchange(other.owed_, false)) {}
  OwedPromise& operator=(OwedPromise&& other) noexcept {
    std::swap(promise_, other.promise_);
    std::swap(owed_, other.owed_);
    return *this;
  }
  ~OwedPromise() {
    if (owed_) promise_.deliver(caf::make_error(caf::sec::request_receiver_down));
  }

  bool owed() const { return owed_; }
  void deliver(Reply reply) {
    if (std::exchange(owed_, false)) promise_.deliver(std::move(reply));
  }

 private:
  caf::typed_response_promise<Reply> promise_;
  bool owed_ = false;
};

}  // namespace troupe

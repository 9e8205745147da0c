// The client's half that lives on the event loop: the connector, the generations, and calls with
// one answer.
#pragma once

#include <kj/async.h>

#include <functional>
#include <future>
#include <map>
#include <memory>

#include "apps/client/generation.h"
#include "apps/client/link.h"

namespace troupe::rpc {

// A result that the calling thread waits for. Whatever happens to the pledge, it gets one.
template <class T>
class Pledge {
 public:
  ~Pledge() { give(Error{ErrorCode::kCancelled, "the client was closed"}); }
  void give(Result<T> result) {
    if (!std::exchange(given_, true)) promise_.set_value(std::move(result));
  }
  std::future<Result<T>> future() { return promise_.get_future(); }

 private:
  std::promise<Result<T>> promise_;
  bool given_ = false;
};

class Core final : private kj::TaskSet::ErrorHandler {
 public:
  Core(const LoopContext& loop, std::vector<Endpoint> endpoints, const ClientOptions& options);

  // Sends one call on a session.
  template <class T>
  using Send = std::function<kj::Promise<Result<T>>(schema::Session::Client)>;

  struct AskOptions {
    bool repeatable = false;  // harmless if it was carried out and its answer was lost
  };

  void connect(std::shared_ptr<Pledge<void>> pledge);

  template <class T>
  void ask(Send<T> send, AskOptions how, std::shared_ptr<Pledge<T>> pledge);

  // Generations are known by a number of the caller's.
  void generate(uint64_t key, GenerateCall call, std::shared_ptr<HandoffWriter> handoff);
  void drained(uint64_t key);
  void cancel_generation(uint64_t key);
  void expect_cancellation(const RequestId& id);

 private:
  template <class T>
  struct Tried {
    Result<T> answer;
    bool again = false;
  };

  template <class T>
  kj::Promise<Tried<T>> try_once(const Send<T>& send, AskOptions how);
  template <class T>
  kj::Promise<Result<T>> try_until(Send<T> send, AskOptions how, kj::TimePoint deadline,
                                   Duration pause);
  void taskFailed(kj::Exception&& exception) override;

  kj::Timer& timer_;
  const std::shared_ptr<LoopMailbox> mailbox_;
  const ClientOptions options_;
  Connector connector_;
  std::map<uint64_t, std::unique_ptr<Generation>> generations_;
  kj::TaskSet tasks_;
};

}  // namespace troupe::rpc

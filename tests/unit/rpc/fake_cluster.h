// A cluster for tests of the RPC port: its tokens are a function of request id and index, like the
// real one's.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "actors/rpc/requests.h"

namespace troupe::test {

inline GeneratedPiece token_of(const RequestId& id, uint64_t index) {
  const uint64_t digest = std::hash<std::string>{}(id)*31 + index;
  return {index, static_cast<uint32_t>(index * 7 + 1), " t" + std::to_string(index), digest};
}

inline std::string text_of(uint64_t first, uint64_t last) {
  std::string text;
  for (uint64_t i = first; i < last; ++i) text += " t" + std::to_string(i);
  return text;
}

inline GenerateEnd length_end(uint32_t tokens) {
  GenerateEnd end;
  end.reason = FinishReason::kLength;
  end.prompt_tokens = 5;
  end.generated_tokens = tokens;
  return end;
}

inline GenerateEnd failed_end(ErrorCode code, const std::string& message) {
  GenerateEnd end;
  end.reason = FinishReason::kFailed;
  end.error = Error{code, message};
  return end;
}

class FakeCluster final : public ClusterRequests {
 public:
  struct Started {
    GenerateCall call;
    std::shared_ptr<PieceSink> sink;
  };
  // What to do with a generate; runs on the server's thread, outside the lock. By default
  // everything that is due is sent at once, then the end.
  std::function<void(const GenerateCall&, PieceSink&)> on_generate = send_all;
  std::function<void(StatusAnswer)> on_status = [](StatusAnswer answer) {
    answer(ClusterStatus{});
  };
  std::function<void(FaultCall, Done)> on_fault = [](FaultCall, Done done) { done({}); };
  std::function<void(DrainCall, Done)> on_drain = [](DrainCall, Done done) { done({}); };
  std::function<void(MoveCall, Done)> on_move = [](MoveCall, Done done) { done({}); };
  std::function<void(StandbyCall, Done)> on_standby = [](StandbyCall, Done done) { done({}); };
  std::function<void(ShutdownCall, Done)> on_shutdown = [](ShutdownCall, Done done) { done({}); };

  static void send_all(const GenerateCall& call, PieceSink& sink) {
    for (uint64_t i = call.after; i < call.max_tokens; ++i) sink.piece(token_of(call.id, i));
    sink.end(length_end(call.max_tokens));
  }

  void generate(GenerateCall call, std::shared_ptr<PieceSink> sink) override {
    on_generate(call, *sink);
    change([&] { started_.push_back({std::move(call), std::move(sink)}); });
  }
  void detach(const RequestId& id, const PieceSink*) override {
    change([&] { detached_.push_back(id); });
  }
  void cancel(const RequestId& id, Done done) override {
    std::shared_ptr<PieceSink> sink;
    change([&] {
      cancelled_.push_back(id);
      for (const auto& started : started_)
        if (started.call.id == id) sink = started.sink;
    });
    if (sink) {
      GenerateEnd end;
      end.reason = FinishReason::kCancelled;
      sink->end(end);
      done({});
    } else {
      done(Error{ErrorCode::kNotFound, "no request " + id});
    }
  }
  void status(StatusAnswer answer) override { on_status(std::move(answer)); }
  void inject_fault(FaultCall call, Done done) override {
    on_fault(std::move(call), std::move(done));
  }
  void drain(DrainCall call, Done done) override { on_drain(std::move(call), std::move(done)); }
  void move(MoveCall call, Done done) override { on_move(std::move(call), std::move(done)); }
  void set_standby(StandbyCall call, Done done) override {
    on_standby(std::move(call), std::move(done));
  }
  void shutdown(ShutdownCall call, Done done) override {
    on_shutdown(std::move(call), std::move(done));
  }

  // Blocks until the cluster has been asked that many times; then what it was asked.
  Started wait_started(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_.size() >= count; });
    return started_[count - 1];
  }
  void wait_detached(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return detached_.size() >= count; });
  }
  size_t started() {
    const std::lock_guard lock(mutex_);
    return started_.size();
  }
  std::vector<RequestId> detached() {
    const std::lock_guard lock(mutex_);
    return detached_;
  }
  std::vector<RequestId> cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

 private:
  template <class Act>
  void change(Act act) {
    const std::lock_guard lock(mutex_);
    act();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Started> started_;
  std::vector<RequestId> detached_, cancelled_;
};

}  // namespace troupe::test

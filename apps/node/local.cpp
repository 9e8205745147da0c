#include "apps/node/local.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "apps/node/runtime.h"
#include "base/log.h"
#include "base/time.h"

namespace troupe {
namespace {

// Collects one answer; pieces are handed over on the waiting thread.
class AnswerSink final : public PieceSink {
 public:
  void piece(GeneratedPiece piece) override {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
    changed_.notify_one();
  }
  void end(GenerateEnd end) override {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    changed_.notify_one();
  }

  struct News {
    std::vector<GeneratedPiece> pieces;
    std::optional<GenerateEnd> end;
  };
  // Whatever came since the last call; waits a little if that is nothing.
  News wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20ms, [this] { return !pieces_.empty() || end_; });
    return {std::exchange(pieces_, {}), end_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GeneratedPiece> pieces_;
  std::optional<GenerateEnd> end_;
};

NodeConfig config_of(const RunOptions& options) {
  NodeConfig config;
  config.cluster.id = "000000000000000a";  // nobody else sees it
  config.node.id = "local";
  config.transport.kind = TransportKind::kLoopback;
  config.deployment.model = options.model_path;
  config.deployment.name = "model";
  config.deployment.stages = options.stages;
  config.deployment.context = options.context;
  config.deployment.streams = 1;
  config.deployment.threads = options.threads;
  config.deployment.kernels = options.kernels;
  config.deployment.isolation = Isolation::kThread;
  config.limits.drain_deadline = Duration{0};
  return config;
}

GenerateCall call_of(const RunOptions& options) {
  GenerateCall call;
  call.id = "run";
  if (options.raw)
    call.prompt = options.prompt;
  else
    call.messages = {{"user", options.prompt}};
  call.max_tokens = options.max_tokens;
  call.sampling = options.sampling;
  call.ignore_end = options.ignore_end;
  return call;
}

// Until the replica serves; an error if it never will.
Result<void> wait_until_serving(ClusterRequests& requests, const std::atomic<bool>& cancelled) {
  while (!cancelled) {
    std::promise<Result<ClusterStatus>> promise;
    auto answer = promise.get_future();
    requests.status(
        [&promise](Result<ClusterStatus> status) { promise.set_value(std::move(status)); });
    TROUPE_TRY(const ClusterStatus status, answer.get());
    const DeploymentStatus& deployment = status.deployments.front();
    if (deployment.state == DeploymentState::kServing) return {};
    if (deployment.state == DeploymentState::kFailed || deployment.detail.starts_with("no node") ||
        deployment.detail.starts_with("needs"))
      return Error{ErrorCode::kUnavailable, deployment.detail};
    for (const ClusterEvent& event : status.events)
      if (event.text.find("could not start") != std::string::npos)
        return Error{ErrorCode::kUnavailable, event.text};
    std::this_thread::sleep_for(5ms);
  }
  return Error{ErrorCode::kCancelled, "cancelled while the model was loading"};
}

}  // namespace

Result<RunSummary> run_local(const RunOptions& options,
                             const std::function<void(const std::string&)>& on_text,
                             const std::atomic<bool>& cancelled) {
  const Instant start = steady_now();
  RuntimeOptions runtime_options;
  runtime_options.config = config_of(options);
  runtime_options.listens = false;
  TROUPE_TRY(auto runtime,
             NodeRuntime::start(std::move(runtime_options), [](EndReason, std::string) {}));
  ClusterRequests& requests = *runtime->requests();
  TROUPE_TRY_VOID(wait_until_serving(requests, cancelled));

  RunSummary summary;
  const Instant loaded = steady_now();
  summary.load_seconds = to_seconds(loaded - start);
  const auto sink = std::make_shared<AnswerSink>();
  requests.generate(call_of(options), sink);
  for (bool asked_to_stop = false;;) {
    const AnswerSink::News news = sink->wait();
    for (const GeneratedPiece& piece : news.pieces) {
      if (piece.index == 0) summary.first_token_seconds = to_seconds(steady_now() - loaded);
      if (!piece.text.empty()) on_text(piece.text);
    }
    if (news.end) {
      if (!news.end->text.empty()) on_text(news.end->text);
      if (news.end->error) return *news.end->error;
      summary.reason = news.end->reason;
      summary.prompt_tokens = news.end->prompt_tokens;
      summary.generated_tokens = news.end->generated_tokens;
      summary.total_seconds = to_seconds(steady_now() - loaded);
      return summary;
    }
    if (cancelled && !std::exchange(asked_to_stop, true))
      requests.cancel("run", [](Result<void>) {});
  }
}

}  // namespace troupe

#include "actors/rpc/session.h"

#include <fmt/format.h>
#include <kj/debug.h>

#include <chrono>

#include "actors/rpc/answer.h"
#include "actors/rpc/guarded_stream.h"
#include "actors/rpc/stream_queue.h"
#include "actors/rpc/validate.h"
#include "actors/rpc/wire.h"
#include "base/log.h"

namespace troupe::rpc {
namespace {

constexpr uint32_t kLoginsMax = 16;  // per connection; each session that is handed out costs memory
constexpr Duration kDrainMax = 1h;   // what a client may ask for at shutdown

// Takes the same time wherever the texts differ.
bool same_secret(kj::StringPtr given, const std::string& wanted) {
  unsigned difference = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < wanted.size(); ++i)
    difference |= static_cast<unsigned char>(i < given.size() ? given[i] : 0) ^
                  static_cast<unsigned char>(wanted[i]);
  return difference == 0;
}

GenerateEnd failed(Error error) {
  GenerateEnd end;
  end.reason = FinishReason::kFailed;
  end.error = std::move(error);
  return end;
}

// One generate of one client, from the cluster's sink to the client's. Destroyed when it is done,
// when the client drops the call or when the connection ends; then the cluster hears of it.
class GenerateStream {
 public:
  GenerateStream(std::shared_ptr<ConnectionState> connection, GenerateCall call,
                 schema::TokenSink::Client sink)
      : connection_(std::move(connection)),
        server_(*connection_->server),
        id_(call.id),
        queue_(std::make_shared<StreamQueue>(
            server_.mailbox,
            StreamQueue::Options{.after = call.after,
                                 .pieces_max = server_.options.pieces_queued_max})),
        sink_(kj::mv(sink)) {
    ++connection_->generates;
    ++server_.counts->generates;
    server_.requests.generate(std::move(call), queue_);
  }
  ~GenerateStream() {
    --connection_->generates;
    --server_.counts->generates;
    if (queue_->close()) server_.requests.detach(id_, queue_.get());
  }
  GenerateStream(const GenerateStream&) = delete;
  GenerateStream& operator=(const GenerateStream&) = delete;

  // The end, once every piece before it was pushed and the client answered every push.
  kj::Promise<GenerateEnd> run() {
    return queue_->ready().then([this]() -> kj::Promise<GenerateEnd> {
      auto batch = queue_->take();
      if (batch.end) return std::move(*batch.end);
      if (batch.pieces.empty()) return run();
      return push(batch.pieces).then([this](Result<void> pushed) -> kj::Promise<GenerateEnd> {
        if (!pushed.ok()) return failed(pushed.error());
        return run();
      });
    });
  }

 private:
  kj::Promise<Result<void>> push(const std::vector<GeneratedPiece>& pieces) {
    auto request = sink_.pushRequest();
    auto list = request.initPieces(static_cast<unsigned>(pieces.size()));
    for (unsigned i = 0; i < list.size(); ++i) write(pieces[i], list[i]);
    auto pushed = request.send().then([](auto&&) -> Result<void> { return {}; },
                                      [](kj::Exception&& e) -> Result<void> {
                                        return with_context(error_from(e), "the client's sink");
                                      });
    const Duration limit = server_.options.push_max;
    auto late = server_.timer.afterDelay(to_kj(limit)).then([limit]() -> Result<void> {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("the client took no tokens for {} s; resume", to_seconds(limit))};
    });
    return pushed.exclusiveJoin(kj::mv(late));
  }

  const std::shared_ptr<ConnectionState> connection_;
  ServerState& server_;
  const RequestId id_;
  const std::shared_ptr<StreamQueue> queue_;
  schema::TokenSink::Client sink_;
};

class SessionServer final : public schema::Session::Server {
 public:
  explicit SessionServer(std::shared_ptr<ConnectionState> connection)
      : connection_(std::move(connection)), server_(*connection_->server) {}

  kj::Promise<void> generate(GenerateContext context) override {
    // Without this a call outlives its client. Everything is copied out of the parameters here.
    context.allowCancellation();
    auto call = read_call(context.getParams().getRequest());
    if (!call.ok()) {
      write(failed(call.error()), read_id(context), context.getResults().initEnd());
      return kj::READY_NOW;
    }
    const RequestId id = call.value().id;
    auto stream = kj::heap<GenerateStream>(connection_, std::move(call).value(),
                                           context.getParams().getSink());
    context.releaseParams();
    auto end = stream->run().attach(kj::mv(stream));
    return end.then([context, id](GenerateEnd result) mutable {
      write(result, id, context.getResults().initEnd());
    });
  }

  kj::Promise<void> cancel(CancelContext context) override {
    context.allowCancellation();
    const auto text = context.getParams().getId();
    const RequestId id(text.begin(), text.size());
    const auto valid = validate_request_id(id);
    if (!valid.ok()) return refuse(context, valid.error());
    return pass_on(context,
                   [this, &id](Done done) { server_.requests.cancel(id, std::move(done)); });
  }

  kj::Promise<void> status(StatusContext context) override {
    context.allowCancellation();
    return ask<ClusterStatus>(
               [this](StatusAnswer answer) { server_.requests.status(std::move(answer)); })
        .then([context](Result<ClusterStatus> answer) mutable {
          if (answer.ok())
            write(answer.value(), context.getResults().initStatus());
          else
            write(answer.error(), context.getResults().initFailure());
        });
  }

  kj::Promise<void> injectFault(InjectFaultContext context) override {
    context.allowCancellation();
    if (!server_.options.fault_injection)
      return refuse(context,
                    {ErrorCode::kInvalidArgument, "fault injection is not allowed on this daemon"});
    auto call = read(context.getParams().getFault());
    if (!call.ok()) return refuse(context, call.error());
    return pass_on(context, [this, &call](Done done) {
      server_.requests.inject_fault(std::move(call).value(), std::move(done));
    });
  }

  kj::Promise<void> shutdown(ShutdownContext context) override {
    context.allowCancellation();
    const auto params = context.getParams();
    const auto limit_ms = std::chrono::duration_cast<std::chrono::milliseconds>(kDrainMax).count();
    if (params.getDrainMaxMs() > static_cast<uint64_t>(limit_ms))
      return refuse(context,
                    {ErrorCode::kInvalidArgument, fmt::format("a drain of {} ms, limit {} ms",
                                                              params.getDrainMaxMs(), limit_ms)});
    const ShutdownCall call{params.getWholeCluster(),
                            std::chrono::milliseconds(params.getDrainMaxMs())};
    return pass_on(context,
                   [this, &call](Done done) { server_.requests.shutdown(call, std::move(done)); });
  }

  kj::Promise<void> drainNode(DrainNodeContext context) override {
    context.allowCancellation();
    auto call = read(context.getParams());
    if (!call.ok()) return refuse(context, call.error());
    return pass_on(context, [this, &call](Done done) {
      server_.requests.drain(std::move(call).value(), std::move(done));
    });
  }

  kj::Promise<void> moveStage(MoveStageContext context) override {
    context.allowCancellation();
    auto call = read(context.getParams());
    if (!call.ok()) return refuse(context, call.error());
    return pass_on(context, [this, &call](Done done) {
      server_.requests.move(std::move(call).value(), std::move(done));
    });
  }

  kj::Promise<void> setStandby(SetStandbyContext context) override {
    context.allowCancellation();
    auto call = read(context.getParams());
    if (!call.ok()) return refuse(context, call.error());
    return pass_on(context, [this, &call](Done done) {
      server_.requests.set_standby(std::move(call).value(), std::move(done));
    });
  }

  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }

 private:
  // For the answer to a call that was refused: what can be said of the id without trusting it.
  static RequestId read_id(GenerateContext& context) {
    const auto text = context.getParams().getRequest().getId();
    return RequestId(text.begin(), std::min(text.size(), kRequestIdBytesMax));
  }

  Result<GenerateCall> read_call(schema::GenerateRequest::Reader request) {
    if (server_.draining) return Error{ErrorCode::kUnavailable, "this daemon is shutting down"};
    if (connection_->generates >= server_.options.generates_max)
      return Error{ErrorCode::kResourceExhausted,
                   fmt::format("{} requests are running on this connection, limit {}",
                               connection_->generates, server_.options.generates_max)};
    TROUPE_TRY(GenerateCall call, read(request));
    if (call.id.empty()) call.id = make_request_id();
    TROUPE_TRY_VOID(validate(call));
    return call;
  }

  template <class Context>
  static kj::Promise<void> refuse(Context context, const Error& error) {
    write(error, context.getResults().initFailure());
    return kj::READY_NOW;
  }

  // Hands an answer's callback to `start` and waits for it, within the limits on time and on
  // waiting calls.
  template <class T, class Start>
  kj::Promise<Result<T>> ask(Start&& start) {
    const RpcOptions& options = server_.options;
    if (connection_->calls >= options.calls_max)
      return Result<T>(Error{ErrorCode::kResourceExhausted,
                             fmt::format("{} calls wait for an answer on this connection, limit {}",
                                         connection_->calls, options.calls_max)});
    auto question = make_question<T>(server_.mailbox);
    start(std::move(question.answer));
    auto late = server_.timer.afterDelay(to_kj(options.answer_max))
                    .then([limit = options.answer_max]() -> Result<T> {
                      return Error{
                          ErrorCode::kDeadlineExceeded,
                          fmt::format("the cluster did not answer within {} s", to_seconds(limit))};
                    });
    ++connection_->calls;
    return question.promise.exclusiveJoin(kj::mv(late))
        .attach(kj::defer([connection = connection_] { --connection->calls; }));
  }

  template <class Context, class Start>
  kj::Promise<void> pass_on(Context context, Start&& start) {
    return ask<void>(start).then([context](Result<void> answer) mutable {
      if (!answer.ok()) write(answer.error(), context.getResults().initFailure());
    });
  }

  const std::shared_ptr<ConnectionState> connection_;
  ServerState& server_;
};

class DoorServer final : public schema::Door::Server {
 public:
  explicit DoorServer(std::shared_ptr<ConnectionState> connection)
      : connection_(std::move(connection)) {}

  kj::Promise<void> login(LoginContext context) override {
    const RpcOptions& options = connection_->server->options;
    const auto params = context.getParams();
    auto results = context.getResults();
    if (params.getProtocol() < schema::PROTOCOL_VERSION) {
      write(Error{ErrorCode::kInvalidArgument,
                  fmt::format("protocol version {}, this daemon speaks {}; update the client",
                              params.getProtocol(), +schema::PROTOCOL_VERSION)},
            results.initFailure());
      return kj::READY_NOW;
    }
    if (!options.token.empty() && !same_secret(params.getToken(), options.token)) {
      ++connection_->server->counts->refused;
      log_warning("rpc", "a client's token was refused");
      write(Error{ErrorCode::kInvalidArgument, "the token was refused"}, results.initFailure());
      return kj::READY_NOW;
    }
    if (++connection_->logins > kLoginsMax) {
      write(Error{ErrorCode::kResourceExhausted, fmt::format("login {} on one connection, limit {}",
                                                             connection_->logins, kLoginsMax)},
            results.initFailure());
      return kj::READY_NOW;
    }
    if (!connection_->logged_in) {
      connection_->logged_in = true;
      if (connection_->raise_limits) connection_->raise_limits();
    }
    results.setSession(kj::heap<SessionServer>(connection_));
    results.setProtocol(schema::PROTOCOL_VERSION);
    results.setVersion(kj::StringPtr(options.version.c_str(), options.version.size()));
    results.setNode(kj::StringPtr(options.node.c_str(), options.node.size()));
    return kj::READY_NOW;
  }

 private:
  const std::shared_ptr<ConnectionState> connection_;
};

}  // namespace

kj::Own<schema::Door::Server> make_door(std::shared_ptr<ConnectionState> connection) {
  return kj::heap<DoorServer>(std::move(connection));
}

}  // namespace troupe::rpc

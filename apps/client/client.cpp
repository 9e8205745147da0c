#include "apps/client/client.h"

#include <atomic>

#include "actors/rpc/endpoint.h"
#include "actors/rpc/event_loop.h"
#include "actors/rpc/validate.h"
#include "actors/rpc/wire.h"
#include "apps/client/core.h"

namespace troupe {

struct Client::Parts {
  std::unique_ptr<rpc::EventLoop> loop;
  rpc::Core* core = nullptr;  // lives on the loop: used in its jobs only
  std::atomic<uint64_t> next_key{1};

  // Runs `start` on the loop with a pledge, and waits for what becomes of it.
  template <class T, class Start>
  Result<T> wait_for(Start start) {
    auto pledge = std::make_shared<rpc::Pledge<T>>();
    auto future = pledge->future();
    loop->mailbox().post([core = core, start = std::move(start), pledge] { start(*core, pledge); });
    pledge.reset();  // only the loop's copies count: a dropped job is an answer too
    return future.get();
  }

  template <class T>
  Result<T> ask(rpc::Core::Send<T> send, rpc::Core::AskOptions how) {
    return wait_for<T>([send = std::move(send), how](rpc::Core& on, auto pledge) {
      on.ask<T>(send, how, std::move(pledge));
    });
  }
};

namespace {

using Session = rpc::schema::Session::Client;

// Sends a request whose only result is a failure or none.
template <class Request>
kj::Promise<Result<void>> send_plain(Request request) {
  return request.send().then(
      [](auto&& answer) { return rpc::read_outcome(answer.hasFailure(), answer.getFailure()); });
}

// Cancels when it goes out of scope too early: a callback that throws must not leave a request
// running.
class CancelUnlessDone {
 public:
  explicit CancelUnlessDone(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  ~CancelUnlessDone() {
    if (!done) cancel_();
  }
  CancelUnlessDone(const CancelUnlessDone&) = delete;
  CancelUnlessDone& operator=(const CancelUnlessDone&) = delete;
  bool done = false;

 private:
  const std::function<void()> cancel_;
};

}  // namespace

Client::Client(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}

Client::~Client() {
  parts_->loop->stop();
}

Result<std::unique_ptr<Client>> Client::connect(const std::vector<std::string>& addresses,
                                                const ClientOptions& options) {
  if (addresses.empty()) return Error{ErrorCode::kInvalidArgument, "no address to connect to"};
  std::vector<rpc::Endpoint> endpoints;
  for (const auto& address : addresses) {
    TROUPE_TRY(rpc::Endpoint endpoint, rpc::parse_endpoint(address));
    endpoints.push_back(endpoint);
  }
  auto parts = std::make_shared<Parts>();
  auto loop = rpc::EventLoop::start("troupe-client", [&](const rpc::LoopContext& context) {
    auto core = std::make_shared<rpc::Core>(context, endpoints, options);
    parts->core = core.get();
    return core;
  });
  if (!loop.ok()) return loop.error();
  parts->loop = std::move(loop).value();
  std::unique_ptr<Client> client(new Client(std::move(parts)));
  TROUPE_TRY_VOID(client->parts_->wait_for<void>(
      [](rpc::Core& core, auto pledge) { core.connect(std::move(pledge)); }));
  return client;
}

Result<GenerateOutcome> Client::generate(const GenerateRequest& request, const OnPiece& on_piece) {
  GenerateCall call = request;
  if (call.id.empty()) call.id = make_request_id();
  TROUPE_TRY_VOID(validate(call));
  GenerateOutcome outcome;
  outcome.id = call.id;

  const auto parts = parts_;
  auto handoff = std::make_shared<rpc::Handoff>();
  auto& mailbox = parts->loop->mailbox();
  auto* const core = parts->core;
  const uint64_t key = parts->next_key.fetch_add(1);
  mailbox.post(
      [core, key, call = std::move(call), writer = std::make_shared<rpc::HandoffWriter>(handoff)] {
        core->generate(key, call, writer);
      });
  const auto cancel = [&] { mailbox.post([core, key] { core->cancel_generation(key); }); };
  CancelUnlessDone guard(cancel);

  bool wanted = true;
  for (;;) {
    const auto batch = handoff->take();
    if (batch.was_full) mailbox.post([core, key] { core->drained(key); });
    for (const GeneratedPiece& piece : batch.pieces) {
      if (!wanted) break;
      outcome.text += piece.text;
      wanted = !on_piece || on_piece(piece);
      if (!wanted) cancel();
    }
    if (!batch.result) continue;
    guard.done = true;
    TROUPE_TRY(const GenerateEnd end, batch.result->end);
    outcome.resumptions = batch.result->resumptions;
    outcome.reason = wanted ? end.reason : FinishReason::kCancelled;
    outcome.prompt_tokens = end.prompt_tokens;
    outcome.generated_tokens = end.generated_tokens;
    if (wanted) outcome.tail = end.text;
    outcome.text += outcome.tail;
    return outcome;
  }
}

Result<void> Client::cancel(const RequestId& id) {
  TROUPE_TRY_VOID(validate_request_id(id));
  const auto parts = parts_;
  TROUPE_TRY_VOID(parts->ask<void>(
      [id](Session session) {
        auto request = session.cancelRequest();
        request.setId(kj::StringPtr(id.c_str(), id.size()));
        return send_plain(kj::mv(request));
      },
      {.repeatable = true}));
  parts->loop->mailbox().post([core = parts->core, id] { core->expect_cancellation(id); });
  return {};
}

Result<ClusterStatus> Client::status() {
  return parts_->ask<ClusterStatus>(
      [](Session session) {
        return session.statusRequest().send().then([](auto&& answer) -> Result<ClusterStatus> {
          if (answer.hasFailure()) return rpc::read(answer.getFailure());
          return rpc::read(answer.getStatus());
        });
      },
      {.repeatable = true});
}

Result<void> Client::drain(const DrainCall& call) {
  TROUPE_TRY_VOID(validate(call));
  return parts_->ask<void>(
      [call](Session session) {
        auto request = session.drainNodeRequest();
        rpc::write(call, request);
        return send_plain(kj::mv(request));
      },
      {.repeatable = true});
}

Result<void> Client::move(const MoveCall& call) {
  TROUPE_TRY_VOID(validate(call));
  return parts_->ask<void>(
      [call](Session session) {
        auto request = session.moveStageRequest();
        rpc::write(call, request);
        return send_plain(kj::mv(request));
      },
      {.repeatable = false});
}

Result<void> Client::set_standby(const StandbyCall& call) {
  TROUPE_TRY_VOID(validate(call));
  return parts_->ask<void>(
      [call](Session session) {
        auto request = session.setStandbyRequest();
        rpc::write(call, request);
        return send_plain(kj::mv(request));
      },
      {.repeatable = true});
}

Result<void> Client::inject_fault(const FaultCall& call) {
  return parts_->ask<void>(
      [call](Session session) {
        auto request = session.injectFaultRequest();
        rpc::write(call, request.initFault());
        return send_plain(kj::mv(request));
      },
      {.repeatable = false});
}

Result<void> Client::inject_fault(const std::string& model, uint32_t stage,
                                  const std::string& fault) {
  // An empty text would be taken as "as kind says".
  if (fault.empty()) return Error{ErrorCode::kInvalidArgument, "the fault is empty"};
  return inject_fault(FaultCall{.model = model, .stage = stage, .text = fault});
}

Result<void> Client::shutdown(const ShutdownCall& call) {
  const auto drain = std::chrono::duration_cast<std::chrono::milliseconds>(call.drain_max).count();
  if (drain < 0) return Error{ErrorCode::kInvalidArgument, "a negative time to drain"};
  return parts_->ask<void>(
      [call, drain](Session session) {
        auto request = session.shutdownRequest();
        request.setWholeCluster(call.whole_cluster);
        request.setDrainMaxMs(static_cast<uint64_t>(drain));
        return send_plain(kj::mv(request));
      },
      {.repeatable = false});
}

}  // namespace troupe

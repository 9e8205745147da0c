#include "actors/rpc/server.h"

#include <capnp/rpc-twoparty.h>
#include <fmt/format.h>
#include <kj/async-io.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <future>

#include "actors/rpc/endpoint.h"
#include "actors/rpc/event_loop.h"
#include "actors/rpc/guarded_stream.h"
#include "actors/rpc/session.h"
#include "actors/rpc/wire.h"
#include "base/log.h"

namespace troupe {
namespace rpc {
namespace {

// A client that resets its connection before it is accepted fails one accept; a process without
// descriptors fails them all. So only many failures in a row are a reason to pause.
constexpr uint64_t kAcceptFailuresBeforePause = 16;
constexpr Duration kAcceptPause = 100ms;
constexpr Duration kDrainPoll = 5ms;
constexpr uint64_t kQuestionsBeforeLogin = 64;

// A message whose parts are read more than once counts as often against the traversal limit.
constexpr uint64_t kTraversalFactor = 4;

GuardOptions guard_options(const RpcOptions& options) {
  GuardOptions guard;
  guard.frames = {.words_max = options.frame_bytes_before_login / 8,
                  .questions_max = kQuestionsBeforeLogin,
                  .bytes_max = options.bytes_before_login};
  guard.write_stall_max = options.write_stall_max;
  guard.frame_wait_max = options.write_stall_max;
  return guard;
}

capnp::ReaderOptions reader_options(const RpcOptions& options) {
  capnp::ReaderOptions reader;
  reader.traversalLimitInWords = kTraversalFactor * options.frame_bytes_max / 8;
  reader.nestingLimit = 32;
  return reader;
}

void tune(kj::AsyncIoStream& stream, const SocketTuning& tuning) {
  const int yes = 1;
  stream.setsockopt(SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  stream.setsockopt(IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  stream.setsockopt(SOL_SOCKET, SO_SNDBUF, &tuning.send_buffer_bytes, sizeof(int));
  stream.setsockopt(IPPROTO_TCP, TCP_KEEPIDLE, &tuning.keepalive_idle_s, sizeof(int));
  stream.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, &tuning.unacknowledged_max_ms, sizeof(int));
}

// One client. Members are destroyed from the last to the first: the RPC system before what it
// stands on.
class Connection {
 public:
  Connection(kj::Own<kj::AsyncIoStream> stream, const std::shared_ptr<ServerState>& server)
      : server_(server),
        state_(std::make_shared<ConnectionState>(
            ConnectionState{.server = server, .raise_limits = nullptr})),
        stream_(
            kj::heap<GuardedStream>(kj::mv(stream), server->timer, guard_options(server->options))),
        network_(*stream_, capnp::rpc::twoparty::Side::SERVER, reader_options(server->options)),
        rpc_(capnp::makeRpcServer(network_, make_door(state_))) {
    ++server_->counts->connections;
    stream_->watch_backlog([this] { return network_.getCurrentQueueCount(); });
    stream_->when_refused([this](const Error& error) {
      ++server_->counts->refused;
      log_info("rpc", "a client's connection was ended: {}", error.message);
    });
    state_->raise_limits = [this] {
      const RpcOptions& options = server_->options;
      stream_->frames().set_limits({.words_max = options.frame_bytes_max / 8,
                                    .questions_max = options.questions_max,
                                    .bytes_max = 0});
    };
  }
  ~Connection() noexcept(false) {
    state_->raise_limits = nullptr;
    --server_->counts->connections;
  }

  // Resolves when the client has gone, or has not logged in when it was due.
  kj::Promise<void> over() {
    auto late = server_->timer.afterDelay(to_kj(server_->options.login_max))
                    .then([this]() -> kj::Promise<void> {
                      if (state_->logged_in) return kj::NEVER_DONE;
                      ++server_->counts->refused;
                      log_info("rpc", "a connection was ended: no login within {} s",
                               to_seconds(server_->options.login_max));
                      return kj::READY_NOW;
                    });
    return network_.onDisconnect().exclusiveJoin(kj::mv(late));
  }

 private:
  const std::shared_ptr<ServerState> server_;
  const std::shared_ptr<ConnectionState> state_;
  kj::Own<GuardedStream> stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc_;
};

// Accepts connections and keeps them. Lives on the loop.
class Front final : private kj::TaskSet::ErrorHandler {
 public:
  Front(const LoopContext& loop, ClusterRequests& requests, const RpcOptions& options,
        std::shared_ptr<ServerCounts> counts, int listening)
      : server_(std::make_shared<ServerState>(
            ServerState{requests, options, loop.timer, loop.mailbox, std::move(counts)})),
        receiver_(loop.streams.wrapListenSocketFd(
            listening, kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP |
                           kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC |
                           kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK)),
        connections_(*this),
        accepting_(accept_all().eagerlyEvaluate(nullptr)),
        draining_(nullptr) {}

  void drain(Duration drain_max, std::function<void()> done) {
    server_->draining = true;
    accepting_ = nullptr;
    receiver_ = nullptr;
    const auto deadline = server_->timer.now() + to_kj(drain_max);
    draining_ = wait_until_idle(deadline)
                    .then([done = std::move(done)] { done(); })
                    .eagerlyEvaluate(nullptr);
  }

 private:
  kj::Promise<void> accept_all() {
    return kj::evalNow([this] { return receiver_->accept(); })
        .then(
            [this](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
              accept_failures_ = 0;
              take(kj::mv(stream));
              return kj::READY_NOW;
            },
            [this](kj::Exception&& e) -> kj::Promise<void> {
              if (accept_failures_++ % 100 == 0)
                log_warning("rpc", "cannot accept a connection: {}", error_from(e).message);
              if (accept_failures_ < kAcceptFailuresBeforePause) return kj::READY_NOW;
              return server_->timer.afterDelay(to_kj(kAcceptPause));
            })
        .then([this] { return accept_all(); });
  }

  void take(kj::Own<kj::AsyncIoStream> stream) {
    ++server_->counts->accepted;
    if (server_->counts->connections >= server_->options.connections_max) {
      ++server_->counts->refused;
      log_info("rpc", "a connection was refused: {} are open, limit {}",
               server_->counts->connections.load(), server_->options.connections_max);
      return;
    }
    // Setting options fails on a connection that was reset meanwhile.
    connections_.add(kj::evalNow([&] {
      tune(*stream, {});
      auto connection = kj::heap<Connection>(kj::mv(stream), server_);
      auto over = connection->over();
      return over.attach(kj::mv(connection));
    }));
  }

  // Until no generate runs and a moment has passed in which its last answer was written, or it is
  // time.
  kj::Promise<void> wait_until_idle(kj::TimePoint deadline) {
    if (server_->timer.now() >= deadline) return kj::READY_NOW;
    const bool idle = server_->counts->generates == 0;
    return server_->timer.afterDelay(to_kj(kDrainPoll)).then([this, idle, deadline] {
      return idle ? kj::Promise<void>(kj::READY_NOW) : wait_until_idle(deadline);
    });
  }

  void taskFailed(kj::Exception&& exception) override {
    log_debug("rpc", "a connection ended: {}", error_from(exception).message);
  }

  const std::shared_ptr<ServerState> server_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  uint64_t accept_failures_ = 0;
  kj::TaskSet connections_;
  kj::Promise<void> accepting_;
  kj::Promise<void> draining_;
};

}  // namespace
}  // namespace rpc

struct RpcServer::Parts {
  std::shared_ptr<rpc::ServerCounts> counts;
  std::unique_ptr<rpc::EventLoop> loop;
  rpc::Front* front = nullptr;  // lives on the loop: used in its jobs only
};

RpcServer::RpcServer(std::string address, std::unique_ptr<Parts> parts)
    : address_(std::move(address)), parts_(std::move(parts)) {}

RpcServer::~RpcServer() {
  stop(Duration{0});
}

Result<std::unique_ptr<RpcServer>> RpcServer::start(const RpcOptions& options,
                                                    ClusterRequests& requests) {
  TROUPE_TRY(const rpc::Endpoint endpoint, rpc::parse_endpoint(options.listen));
  if (!endpoint.loopback())
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("cannot listen for clients on {}: only loopback addresses are allowed "
                             "as long as client connections are not encrypted",
                             options.listen)};
  TROUPE_TRY(const rpc::ListeningSocket socket, rpc::listen_on(endpoint));
  auto parts = std::make_unique<Parts>();
  parts->counts = std::make_shared<rpc::ServerCounts>();
  bool taken = false;
  auto loop = rpc::EventLoop::start("troupe-rpc", [&](const rpc::LoopContext& context) {
    taken = true;
    auto front =
        std::make_shared<rpc::Front>(context, requests, options, parts->counts, socket.descriptor);
    parts->front = front.get();
    return front;
  });
  if (!loop.ok()) {
    if (!taken) ::close(socket.descriptor);
    return loop.error();
  }
  parts->loop = std::move(loop).value();
  log_info("rpc", "clients are served on {}", rpc::to_string(socket.endpoint));
  return std::unique_ptr<RpcServer>(
      new RpcServer(rpc::to_string(socket.endpoint), std::move(parts)));
}

RpcFigures RpcServer::figures() const {
  const rpc::ServerCounts& counts = *parts_->counts;
  return {counts.connections, counts.generates, counts.accepted, counts.refused};
}

void RpcServer::stop(Duration drain_max) {
  auto drained = std::make_shared<std::promise<void>>();
  auto waiting = drained->get_future();
  const bool running = parts_->loop->mailbox().post([front = parts_->front, drain_max, drained] {
    front->drain(drain_max, [drained] { drained->set_value(); });
  });
  if (running) {
    drained.reset();
    // Ready also if the loop ended first: then the promise was dropped with the job.
    waiting.wait();
  }
  parts_->loop->stop();
}

}  // namespace troupe

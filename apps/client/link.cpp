#include "apps/client/link.h"

#include <fmt/format.h>
#include <kj/debug.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "actors/rpc/wire.h"

namespace troupe::rpc {
namespace {

// The daemon is not trusted with the client's memory either. A status of a large cluster fits many
// times.
GuardOptions guard_options() {
  GuardOptions guard;
  guard.frames = {.words_max = (64U << 20) / 8, .questions_max = 4096, .bytes_max = 0};
  return guard;
}

capnp::ReaderOptions reader_options() {
  capnp::ReaderOptions reader;
  reader.traversalLimitInWords = (256U << 20) / 8;
  return reader;
}

}  // namespace

Link::Link(kj::Own<kj::AsyncIoStream> stream, kj::Timer& timer, const ClientOptions& options)
    : timer_(timer),
      options_(options),
      stream_(kj::heap<GuardedStream>(kj::mv(stream), timer, guard_options())),
      network_(*stream_, capnp::rpc::twoparty::Side::CLIENT, reader_options()),
      rpc_(capnp::makeRpcClient(network_)),
      session_(nullptr),
      lost_(kj::Promise<void>(kj::NEVER_DONE).fork()) {
  stream_->watch_backlog([this] { return network_.getCurrentQueueCount(); });
}

kj::Promise<Result<void>> Link::login() {
  capnp::MallocMessageBuilder message(8);
  auto vat = message.initRoot<capnp::rpc::twoparty::VatId>();
  vat.setSide(capnp::rpc::twoparty::Side::SERVER);
  auto door = rpc_.bootstrap(vat).castAs<schema::Door>();
  auto request = door.loginRequest();
  request.setToken(kj::StringPtr(options_.token.c_str(), options_.token.size()));
  request.setProtocol(schema::PROTOCOL_VERSION);
  request.setClient(kj::StringPtr(options_.name.c_str(), options_.name.size()));
  return request.send().then([this](auto&& answer) -> Result<void> {
    if (answer.hasFailure()) return read(answer.getFailure());
    if (answer.getProtocol() != schema::PROTOCOL_VERSION)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the daemon speaks protocol version {}, this client {}",
                               answer.getProtocol(), +schema::PROTOCOL_VERSION)};
    session_ = answer.getSession();
    lost_ = network_.onDisconnect()
                .exclusiveJoin(ping_for_ever())
                .then([this] { broken_ = true; }, [this](kj::Exception&&) { broken_ = true; })
                .fork();
    return {};
  });
}

kj::Promise<void> Link::lost() {
  return lost_.addBranch();
}

// Ends, by an exception, when an answer does not come in time.
kj::Promise<void> Link::ping_for_ever() {
  return timer_.afterDelay(to_kj(options_.ping_interval))
      .then([this] {
        return timer_.timeoutAfter(to_kj(options_.ping_max),
                                   session_.pingRequest().send().ignoreResult());
      })
      .then([this] { return ping_for_ever(); });
}

Connector::Connector(const LoopContext& loop, std::vector<Endpoint> endpoints,
                     const ClientOptions& options)
    : streams_(loop.streams),
      timer_(loop.timer),
      endpoints_(std::move(endpoints)),
      options_(options),
      attempt_(kj::Promise<Attempt>(kj::NEVER_DONE).fork()) {}

kj::Promise<Result<std::shared_ptr<Link>>> Connector::link() {
  if (current_ && !current_->broken()) return Attempt(current_);
  current_ = nullptr;
  if (!attempting_) {
    attempting_ = true;
    attempt_ = try_from(0, "")
                   .then([this](Attempt attempt) {
                     attempting_ = false;
                     if (attempt.ok()) current_ = attempt.value();
                     return attempt;
                   })
                   .fork();
  }
  return attempt_.addBranch();
}

kj::Promise<Connector::Attempt> Connector::try_from(size_t tried, std::string failures) {
  if (tried == endpoints_.size())
    return Attempt(Error{ErrorCode::kUnavailable, "no daemon answers: " + failures});
  const Endpoint& endpoint = endpoints_[next_];
  return try_one(endpoint).then([this, tried, &endpoint, failures = std::move(failures)](
                                    Attempt attempt) mutable -> kj::Promise<Attempt> {
    // Whatever comes of it: when this link is lost, the next address is tried first.
    next_ = (next_ + 1) % endpoints_.size();
    if (attempt.ok() || attempt.error().code != ErrorCode::kUnavailable) return kj::mv(attempt);
    if (!failures.empty()) failures += "; ";
    failures += to_string(endpoint) + ": " + attempt.error().message;
    return try_from(tried + 1, std::move(failures));
  });
}

kj::Promise<Connector::Attempt> Connector::try_one(const Endpoint& endpoint) {
  const int descriptor =
      ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0)
    return Attempt(Error{ErrorCode::kUnavailable,
                         std::string("cannot open a socket: ") + std::strerror(errno)});
  const int yes = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  auto connected = kj::evalNow([&] {
    return streams_.wrapConnectingSocketFd(descriptor, endpoint.get(), endpoint.size,
                                           kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP |
                                               kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC |
                                               kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK);
  });
  auto logged_in = connected.then([this](kj::Own<kj::AsyncIoStream> stream) {
    auto link = std::make_shared<Link>(kj::mv(stream), timer_, options_);
    auto login = link->login();
    return login.then([link = std::move(link)](Result<void> result) -> Attempt {
      if (!result.ok()) return result.error();
      return link;
    });
  });
  auto late = timer_.afterDelay(to_kj(options_.connect_max))
                  .then([limit = options_.connect_max]() -> Attempt {
                    return Error{ErrorCode::kUnavailable,
                                 fmt::format("no answer within {} s", to_seconds(limit))};
                  });
  return logged_in.exclusiveJoin(kj::mv(late)).catch_([](kj::Exception&& e) -> Attempt {
    return Error{ErrorCode::kUnavailable, error_from(e).message};
  });
}

}  // namespace troupe::rpc

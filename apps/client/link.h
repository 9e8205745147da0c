// The client's connection: made when it is needed, shared by all calls, dropped when it is lost or
// frozen.
#pragma once

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>

#include <memory>
#include <string>
#include <vector>

#include "actors/rpc/endpoint.h"
#include "actors/rpc/event_loop.h"
#include "actors/rpc/guarded_stream.h"
#include "apps/client/client.h"
#include "schemas/client.capnp.h"

namespace troupe::rpc {

namespace schema = ::troupe::schema::client;

// One connection after login. Shared by the calls that use it: it is closed when nobody does.
class Link {
 public:
  Link(kj::Own<kj::AsyncIoStream> stream, kj::Timer& timer, const ClientOptions& options);
  ~Link() noexcept {}

  // Logs in; once, before session().
  kj::Promise<Result<void>> login();
  schema::Session::Client session() { return session_; }

  bool broken() const { return broken_; }
  void give_up() { broken_ = true; }
  // Resolves when the connection is lost or has stopped answering; then broken(). Holders of the
  // promise must hold the link.
  kj::Promise<void> lost();

 private:
  kj::Promise<void> ping_for_ever();

  kj::Timer& timer_;
  const ClientOptions options_;
  kj::Own<GuardedStream> stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc_;
  schema::Session::Client session_;
  bool broken_ = false;
  kj::ForkedPromise<void> lost_;
};

// Finds a working link. Lives on the event loop.
class Connector {
 public:
  Connector(const LoopContext& loop, std::vector<Endpoint> endpoints, const ClientOptions& options);

  // The link there is, or a new one: each address is tried once, starting after the one that failed
  // last. Callers that ask at the same time share the attempt.
  kj::Promise<Result<std::shared_ptr<Link>>> link();

 private:
  using Attempt = Result<std::shared_ptr<Link>>;

  kj::Promise<Attempt> try_from(size_t tried, std::string failures);
  kj::Promise<Attempt> try_one(const Endpoint& endpoint);

  kj::LowLevelAsyncIoProvider& streams_;
  kj::Timer& timer_;
  const std::vector<Endpoint> endpoints_;
  const ClientOptions options_;
  size_t next_ = 0;  // endpoint to try first
  std::shared_ptr<Link> current_;
  bool attempting_ = false;
  kj::ForkedPromise<Attempt> attempt_;  // meaningful while attempting_
};

}  // namespace troupe::rpc

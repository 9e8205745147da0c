// The capabilities a client gets: Door, and Session behind it. They translate, check and pass on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "actors/rpc/event_loop.h"
#include "actors/rpc/requests.h"
#include "actors/rpc/server.h"
#include "schemas/client.capnp.h"

namespace troupe::rpc {

namespace schema = ::troupe::schema::client;

// Read by any thread, written by the loop's.
struct ServerCounts {
  std::atomic<uint32_t> connections{0};
  std::atomic<uint32_t> generates{0};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};
};

// What every connection of a server shares; lives as long as the loop.
struct ServerState {
  ClusterRequests& requests;
  const RpcOptions options;
  kj::Timer& timer;
  const std::shared_ptr<LoopMailbox> mailbox;
  const std::shared_ptr<ServerCounts> counts;
  bool draining = false;  // takes no new generates
};

// What the capabilities of one connection share; outlives the connection where a call in progress
// needs it.
struct ConnectionState {
  const std::shared_ptr<ServerState> server;
  bool logged_in = false;
  std::function<void()>
      raise_limits;  // called at the first login; empty once the connection is gone
  uint32_t logins = 0;
  uint32_t generates = 0;
  uint32_t calls = 0;
};

kj::Own<schema::Door::Server> make_door(std::shared_ptr<ConnectionState> connection);

}  // namespace troupe::rpc

// The door for clients: Cap'n Proto RPC (schemas/client.capnp) over TCP, on one event-loop thread.
//
// Life of a connection: accepted by a loop of our own (the library's stops for good at the first
// reset or when descriptors run out), put behind a guard that distrusts every byte, given until the
// login deadline to say who it is, then served until it leaves. Whatever a client had running is
// detached as soon as its connection ends. Nothing here decides anything about requests: they go to
// ClusterRequests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/rpc/requests.h"
#include "base/time.h"

namespace troupe {

struct RpcOptions {
  std::string listen = "127.0.0.1:7421";  // port 0: any free one; loopback only, until TLS exists
  std::string token{};    // what a client must present; empty: loopback is trust enough
  std::string node{};     // told to clients at login
  std::string version{};  // the same
  bool fault_injection = false;

  uint32_t connections_max = 512;       // more are closed at once
  uint32_t generates_max = 256;         // running at once, per connection
  uint32_t calls_max = 64;              // other calls waiting for an answer, per connection
  uint32_t pieces_queued_max = 65'536;  // per generate, before a slow client is cut off
  Duration login_max = 5s;              // from accept to login
  Duration answer_max = 30s;            // the cluster's, to anything but generate
  Duration push_max = 60s;              // a client's, to one push of tokens
  Duration write_stall_max = 30s;
  uint32_t frame_bytes_before_login = 64U << 10;  // one message
  uint32_t bytes_before_login = 256U << 10;       // all messages
  uint32_t frame_bytes_max = 8U << 20;            // one message, after login
  uint32_t questions_max = 4096;  // calls without a finish, per connection, after login
};

// Momentary and lifelong counts, for `status` and for tests.
struct RpcFigures {
  uint32_t connections = 0;
  uint32_t generates = 0;
  uint64_t accepted = 0;
  uint64_t refused =
      0;  // over the connection cap, no login in time, or bytes that the guard rejects
};

class RpcServer {
 public:
  // Listens when this returns. `requests` must outlive the server.
  // kUnavailable: the port is taken. kInvalidArgument: the address is malformed or not loopback.
  static Result<std::unique_ptr<RpcServer>> start(const RpcOptions& options,
                                                  ClusterRequests& requests);
  ~RpcServer();  // stop(0)
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // "127.0.0.1:7421", with the real port.
  const std::string& address() const { return address_; }
  RpcFigures figures() const;

  // Accepts nothing new, lets running generates end for up to `drain_max`, cuts the rest (their
  // sinks are detached; clients resume elsewhere), and joins the thread. Blocks, so
  // not from inside ClusterRequests. Again is harmless.
  void stop(Duration drain_max);

 private:
  struct Parts;
  RpcServer(std::string address, std::unique_ptr<Parts> parts);

  const std::string address_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace troupe

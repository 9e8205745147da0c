// "host:port" texts and TCP sockets, without a resolver on the event loop.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace troupe::rpc {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  bool loopback() const;
};

std::string to_string(const Endpoint& endpoint);  // "127.0.0.1:7421", "[::1]:7421"

// "127.0.0.1:7421", "localhost:7421", "[::1]:7421"; names are looked up, so not on an event loop's
// thread.
Result<Endpoint> parse_endpoint(std::string_view text);

// A listening, non-blocking socket, and the endpoint it really has (port 0 asks for any free one).
// The caller closes it. kUnavailable: the port is taken.
struct ListeningSocket {
  int descriptor = -1;
  Endpoint endpoint;
};
Result<ListeningSocket> listen_on(const Endpoint& endpoint);

// Lets the kernel notice a peer whose machine vanished, and keeps little in kernel buffers, so that
// our own limits on the backlog mean something.
struct SocketTuning {
  int send_buffer_bytes = 64 << 10;
  int keepalive_idle_s = 15;
  int unacknowledged_max_ms = 30'000;
};

}  // namespace troupe::rpc

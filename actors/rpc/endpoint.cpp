#include "actors/rpc/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace troupe::rpc {
namespace {

struct HostAndPort {
  std::string host;
  uint16_t port = 0;
};

Result<HostAndPort> split(std::string_view text) {
  const Error malformed{
      ErrorCode::kInvalidArgument,
      fmt::format("address \"{}\" is not host:port, for example 127.0.0.1:7421 or [::1]:7421",
                  text.substr(0, 128))};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return malformed;
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return malformed;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed;
  }
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc{} || end != port_text.data() + port_text.size()) return malformed;
  return HostAndPort{std::string(host), port};
}

uint16_t port_of(const Endpoint& endpoint) {
  if (endpoint.address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&endpoint.address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&endpoint.address)->sin_port);
}

Error cannot_listen(const Endpoint& endpoint, int error_number) {
  if (error_number == EADDRINUSE)
    return {ErrorCode::kUnavailable,
            fmt::format("cannot listen on {}: the port is in use by another program; stop it or "
                        "choose another port",
                        to_string(endpoint))};
  return {ErrorCode::kIo,
          fmt::format("cannot listen on {}: {}", to_string(endpoint), std::strerror(error_number))};
}

}  // namespace

bool Endpoint::loopback() const {
  if (address.ss_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(&address);
    return ntohl(ipv4->sin_addr.s_addr) >> 24 == 127;
  }
  if (address.ss_family == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(&address);
    return IN6_IS_ADDR_LOOPBACK(&ipv6->sin6_addr) != 0;
  }
  return false;
}

std::string to_string(const Endpoint& endpoint) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (endpoint.address.ss_family == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.address);
    inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, port_of(endpoint));
  }
  const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(&endpoint.address);
  inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, port_of(endpoint));
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  TROUPE_TRY(const HostAndPort parts, split(text));
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  // A machine without a resolver still knows its own name.
  const std::string host = parts.host == "localhost" ? "127.0.0.1" : parts.host;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(parts.port).c_str(), &hints, &found);
  if (failure != 0)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("address \"{}\": {}", text.substr(0, 128), gai_strerror(failure))};
  Endpoint endpoint;
  endpoint.size = found->ai_addrlen;
  std::memcpy(&endpoint.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return endpoint;
}

Result<ListeningSocket> listen_on(const Endpoint& endpoint) {
  constexpr int kBacklog = 256;
  const int descriptor =
      ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return cannot_listen(endpoint, errno);
  const int yes = 1;
  ListeningSocket socket{descriptor, endpoint};
  socket.endpoint.size = sizeof socket.endpoint.address;
  if (::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
      ::bind(descriptor, endpoint.get(), endpoint.size) < 0 || ::listen(descriptor, kBacklog) < 0 ||
      ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&socket.endpoint.address),
                    &socket.endpoint.size) < 0) {
    const int error_number = errno;
    ::close(descriptor);
    return cannot_listen(endpoint, error_number);
  }
  return socket;
}

}  // namespace troupe::rpc

#include "transport/peer/sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "transport/peer/address.h"
#include "transport/peer/peer_links.h"

namespace troupe {
namespace {

using boost::asio::ip::tcp;
constexpr int kBacklog = 512;

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

int family_of(const tcp::endpoint& endpoint) {
  return endpoint.address().is_v6() ? AF_INET6 : AF_INET;
}

}  // namespace

void OwnedFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Error system_error(int number, const std::string& doing) {
  return Error{ErrorCode::kIo,
               fmt::format("{}: {}", doing, std::generic_category().message(number))};
}

Result<OwnedFd> open_stream(const tcp::endpoint& towards) {
  OwnedFd socket(::socket(family_of(towards), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, "cannot open a socket");
  return socket;
}

Result<OwnedFd> open_listener(const tcp::endpoint& endpoint) {
  const std::string doing = "cannot listen on " + address_text(endpoint);
  TROUPE_TRY(OwnedFd socket, open_stream(endpoint));
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int number = errno;
    if (number == EADDRINUSE)
      return Error{
          ErrorCode::kIo,
          fmt::format("{}: the port is in use; stop what listens there (`ss -ltnp` shows it) "
                      "or choose another port",
                      doing)};
    return system_error(number, doing);
  }
  return socket;
}

Result<tcp::endpoint> local_endpoint(int socket) {
  tcp::endpoint endpoint;
  auto length = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(socket, endpoint.data(), &length) != 0)
    return system_error(errno, "cannot read a socket's address");
  endpoint.resize(length);
  return endpoint;
}

std::pair<Accepted, int> accept_connection(int listener) {
  tcp::endpoint peer;
  auto length = static_cast<socklen_t>(peer.capacity());
  OwnedFd socket(::accept4(listener, peer.data(), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return {Accepted{}, errno};
  peer.resize(length);
  return {Accepted{std::move(socket), address_text(peer)}, 0};
}

void tune_stream(int socket, Duration write_deadline) {
  using std::chrono::duration_cast;
  const int64_t deadline_ms = duration_cast<std::chrono::milliseconds>(write_deadline).count();
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>(std::clamp<int64_t>(deadline_ms, 1, 3600 * 1000)));
}

Result<StreamSocket> asio_socket(boost::asio::io_context& io, OwnedFd socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return system_error(errno, "cannot read a socket's family");
  StreamSocket stream(io);
  boost::system::error_code error;
  const boost::asio::generic::stream_protocol protocol(address.ss_family, 0);
  stream.assign(protocol, socket.get(), error);  // NOLINT: the code is in `error`
  if (error) return system_error(error.value(), "cannot watch a socket");
  socket.release();
  stream.non_blocking(true, error);
  if (error) return system_error(error.value(), "cannot make a socket non-blocking");
  return stream;
}

Result<void> prepare_adopted(int socket) {
  const auto refuse = [socket](const char* what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("descriptor {} {}", socket, what)};
  };
  int type = 0;
  socklen_t length = sizeof(type);
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0)
    return refuse("is not a socket");
  if (type != SOCK_STREAM) return refuse("is not a stream socket");
  sockaddr_storage peer{};
  length = sizeof(peer);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) != 0)
    return refuse("is not connected");
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags < 0 || ::fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(socket, F_SETFD, FD_CLOEXEC) != 0)
    return system_error(errno, "cannot set a socket's flags");
  return {};
}

Result<LinkSocketPair> make_link_sockets() {
  std::array<int, 2> messages{-1, -1};
  std::array<int, 2> beats{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, messages.data()) != 0)
    return system_error(errno, "cannot make a socket pair");
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, beats.data()) != 0) {
    const int number = errno;
    for (const int socket : messages) ::close(socket);
    return system_error(number, "cannot make a socket pair");
  }
  return LinkSocketPair{.ours = {.messages = messages[0], .beats = beats[0]},
                        .theirs = {.messages = messages[1], .beats = beats[1]}};
}

}  // namespace troupe

#include "tests/unit/rpc/port.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "actors/rpc/endpoint.h"
#include "base/check.h"

namespace troupe::test {
namespace {

int dial(const std::string& address) {
  const auto endpoint = rpc::parse_endpoint(address);
  TROUPE_CHECK(endpoint.ok(), "tests dial good addresses");
  const int descriptor =
      ::socket(endpoint.value().address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(descriptor, endpoint.value().get(), endpoint.value().size) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

void close_with_reset(int descriptor) {
  const linger hard{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  ::shutdown(descriptor, SHUT_RDWR);
}

}  // namespace

RawSocket::RawSocket(const std::string& address) : descriptor_(dial(address)) {
  TROUPE_CHECK(descriptor_ >= 0, "the port listens");
  const timeval read_wait{.tv_sec = 30, .tv_usec = 0};
  const timeval send_wait{.tv_sec = 0, .tv_usec = 500'000};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &read_wait, sizeof read_wait);
  ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &send_wait, sizeof send_wait);
}

RawSocket::~RawSocket() {
  ::close(descriptor_);
}

size_t RawSocket::send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(descriptor_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  return sent;
}

void RawSocket::stop_sending() {
  ::shutdown(descriptor_, SHUT_WR);
}

bool RawSocket::closed_by_peer() {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t n = ::recv(descriptor_, buffer.data(), buffer.size(), 0);
    if (n == 0) return true;
    if (n < 0) return errno != EAGAIN;
  }
}

void RawSocket::reset() {
  const linger hard{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  ::close(descriptor_);
  descriptor_ = -1;
}

SilentPort::SilentPort() {
  const auto socket = rpc::listen_on(rpc::parse_endpoint("127.0.0.1:0").value());
  TROUPE_CHECK(socket.ok(), "a free port can be had");
  listening_ = socket.value().descriptor;
  address_ = rpc::to_string(socket.value().endpoint);
}

SilentPort::~SilentPort() {
  ::close(listening_);
}

Relay::Relay(std::string target) : target_(std::move(target)) {
  auto endpoint = rpc::parse_endpoint("127.0.0.1:0");
  auto socket = rpc::listen_on(endpoint.value());
  TROUPE_CHECK(socket.ok(), "the relay listens");
  listening_ = socket.value().descriptor;
  ::fcntl(listening_, F_SETFL, 0);  // blocking: it has a thread of its own
  address_ = rpc::to_string(socket.value().endpoint);
  accepting_ = std::thread([this] { accept_all(); });
}

Relay::~Relay() {
  stopping_ = true;
  ::shutdown(listening_, SHUT_RDWR);
  accepting_.join();
  cut();
  for (auto& thread : threads_) thread.join();
  for (const int socket : sockets_) ::close(socket);
  ::close(listening_);
}

void Relay::cut() {
  const std::lock_guard lock(mutex_);
  for (const int socket : sockets_) close_with_reset(socket);
}

void Relay::accept_all() {
  while (!stopping_) {
    const int client = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const int server = dial(target_);
    if (server < 0) {
      ::close(client);
      continue;
    }
    // Without this small messages wait up to 40 ms for company, on each side.
    const int yes = 1;
    ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ::setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const std::lock_guard lock(mutex_);
    sockets_.push_back(client);
    sockets_.push_back(server);
    threads_.emplace_back([this, client, server] { pass(client, server); });
    threads_.emplace_back([this, client, server] { pass(server, client); });
  }
}

// Sockets are closed by the relay's destructor only, so that no thread uses a number that was given
// away.
void Relay::pass(int from, int to) {
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t n = ::recv(from, buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    if (frozen_) continue;
    for (ssize_t sent = 0; sent < n;) {
      const ssize_t m =
          ::send(to, buffer.data() + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
      if (m <= 0) break;
      sent += m;
    }
  }
  ::shutdown(to, SHUT_RDWR);
  ::shutdown(from, SHUT_RDWR);
}

}  // namespace troupe::test

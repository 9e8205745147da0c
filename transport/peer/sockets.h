// The few socket calls behind peer links, made directly where Asio would leave descriptors open
// across exec: a child that inherits a link's socket keeps the link alive after its owner died.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/time.h"

namespace troupe {

// Closes its descriptor. Moves.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~OwnedFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

using StreamSocket = boost::asio::generic::stream_protocol::socket;

// kIo with the operating system's words.
Error system_error(int number, const std::string& doing);

// Non-blocking, close-on-exec, bound and listening. Errors: kIo; if the port is in use it says what
// to do.
Result<OwnedFd> open_listener(const boost::asio::ip::tcp::endpoint& endpoint);
Result<boost::asio::ip::tcp::endpoint> local_endpoint(int socket);

struct Accepted {
  OwnedFd socket;
  std::string who;  // the peer's address
};
// The next waiting connection; an errno number if there is none: EAGAIN, EMFILE, ….
std::pair<Accepted, int> accept_connection(int listener);

// A non-blocking TCP socket that is not connected yet. Errors: kIo.
Result<OwnedFd> open_stream(const boost::asio::ip::tcp::endpoint& towards);
// No delay, keep-alive, and an end to connections that took no byte for `write_deadline`. Best
// effort.
void tune_stream(int socket, Duration write_deadline);
// For Asio: takes the descriptor.
Result<StreamSocket> asio_socket(boost::asio::io_context& io, OwnedFd socket);

// kInvalidArgument unless it is a connected stream socket; makes it non-blocking and close-on-exec.
Result<void> prepare_adopted(int socket);

}  // namespace troupe

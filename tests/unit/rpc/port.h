// Raw access to a TCP port, for tests: a socket that says anything, and a relay that can cut its
// connections.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"

namespace troupe::test {

// A blocking client socket.
class RawSocket {
 public:
  explicit RawSocket(const std::string& address);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  // How many bytes went out before the other side closed, or took nothing for a while.
  size_t send(const std::string& bytes);
  void stop_sending();
  // Reads until the other side closes; false if it does not.
  bool closed_by_peer();
  // Closes with a reset instead of a goodbye.
  void reset();

 private:
  int descriptor_;
};

// Accepts connections, as the kernel does for a stopped process, and never says a word.
class SilentPort {
 public:
  SilentPort();
  ~SilentPort();
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  const std::string& address() const { return address_; }

 private:
  int listening_ = -1;
  std::string address_;
};

// Passes bytes on in both directions until it is told to cut.
class Relay {
 public:
  explicit Relay(std::string target);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return address_; }
  // Resets every connection there is. New ones are welcome.
  void cut();
  // From now on bytes are taken and dropped, as when the machine behind has frozen.
  void freeze() { frozen_ = true; }

 private:
  void accept_all();
  void pass(int from, int to);

  const std::string target_;
  std::string address_;
  int listening_ = -1;
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> frozen_{false};
  std::thread accepting_;
};

}  // namespace troupe::test

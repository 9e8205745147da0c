// A transport_peer process under a test's control. It ends with the test, whatever happens.
#pragma once

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include "tests/unit/transport/hex.h"

extern char** environ;

namespace troupe::test {

class PeerProcess {
 public:
  // `stream_to`: an address it shall send to, or empty.
  explicit PeerProcess(ByteSpan stream_to = {}) {
    int to_child[2], from_child[2];
    BOOST_REQUIRE(pipe2(to_child, O_CLOEXEC) == 0);
    BOOST_REQUIRE(pipe2(from_child, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    std::string program = beside_this_program("transport_peer");
    std::string address = to_hex_text(stream_to);
    char* arguments[] = {program.data(), address.empty() ? nullptr : address.data(), nullptr};
    const int spawned = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(to_child[0]);
    ::close(from_child[1]);
    input_ = to_child[1];
    BOOST_REQUIRE_MESSAGE(spawned == 0, "starting " << program);
    std::string line;
    for (char byte = 0; read(from_child[0], &byte, 1) == 1 && byte != '\n';) line += byte;
    ::close(from_child[0]);
    address_ = from_hex_text(line);
    BOOST_REQUIRE_MESSAGE(!address_.empty(), "the peer prints its address");
  }
  ~PeerProcess() {
    end(SIGKILL);
    ::close(input_);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const std::vector<std::byte>& address() const { return address_; }
  // A process stops only when one of its threads gets to see the signal: waits for that.
  void signal(int number) const {
    kill(pid_, number);
    int status = 0;
    if (number == SIGSTOP) waitpid(pid_, &status, WUNTRACED);
  }
  // Ends it by a signal and returns its wait status.
  int end(int number) {
    if (pid_ <= 0) return status_;
    kill(pid_, number);
    waitpid(pid_, &status_, 0);
    pid_ = 0;
    return status_;
  }
  // Ends it in order and returns its wait status.
  int finish() {
    ::close(input_);
    input_ = -1;
    waitpid(pid_, &status_, 0);
    pid_ = 0;
    return status_;
  }

 private:
  static std::string beside_this_program(const std::string& name) {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
  }

  pid_t pid_ = 0;
  int input_ = -1;
  int status_ = 0;
  std::vector<std::byte> address_;
};

}  // namespace troupe::test

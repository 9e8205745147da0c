// A process to be killed, frozen or listened to: a UCX transport that takes frames and, given an
// address, streams 256 KiB frames to it. Prints its own address in hexadecimal; ends with its
// standard input.
//   transport_peer [ADDRESS]
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/unit/transport/frames.h"
#include "tests/unit/transport/hex.h"
#include "transport/ucx/ucx_transport.h"

namespace {

using namespace troupe;

class Sink final : public TransportEvents {
 public:
  void on_frame(Frame) override {}
  void on_lost(ConnectionId, Error) override { lost = true; }
  void on_credit(ConnectionId) override {}
  void on_garbage(Error what) override {
    std::fprintf(stderr, "garbage: %s\n", what.message.c_str());
  }
  std::atomic<bool> lost{false};
};

void stream(Transport& transport, Sink& sink, ConnectionId connection) {
  for (uint64_t i = 1; !sink.lost; ++i) {
    Frame frame = test::activations(i, 256 << 10);
    while (transport.send(connection, frame) == SendOutcome::kNoCredit && !sink.lost)
      std::this_thread::yield();
  }
}

}  // namespace

int main(int count, char** arguments) {
  UcxOptions options;
  options.key = 0x7472;
  const Result<void> entered = enter_ucx_environment(options.network, arguments);
  if (!entered.ok()) return std::fprintf(stderr, "%s\n", to_string(entered.error()).c_str()), 1;
  Sink sink;
  auto transport = make_ucx_transport(options, sink);
  if (!transport.ok()) return std::fprintf(stderr, "%s\n", to_string(transport.error()).c_str()), 1;
  std::printf("%s\n", test::to_hex_text(transport.value()->address()).c_str());
  std::fflush(stdout);
  std::thread streaming;
  if (count > 1) {
    const auto connection = transport.value()->connect(test::from_hex_text(arguments[1]));
    if (!connection.ok()) return 1;
    streaming = std::thread([&, id = connection.value()] { stream(*transport.value(), sink, id); });
  }
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  sink.lost = true;
  if (streaming.joinable()) streaming.join();
  return 0;
}

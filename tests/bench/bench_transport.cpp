// Frames through transport/ucx between two processes: one-way latency (half a round trip, answered
// on the progress thread) and throughput, by payload size. Prints JSON.
//   bench_transport [--seconds S] [--sizes BYTES,BYTES,…]
// tools/transport_compare.py runs it beside ucx_perftest.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/transport/frames.h"
#include "tests/unit/transport/hex.h"
#include "transport/ucx/ucx_transport.h"

extern char** environ;

namespace {

using namespace troupe;

// What the answering side does with a frame, carried in its view number.
constexpr ViewNumber kEcho{1}, kTake{2}, kTakeAndAnswer{3};

// The answering process: its connection back is made from the address it was started with.
class Answering final : public TransportEvents {
 public:
  void on_frame(Frame frame) override {
    if (frame.header.view == kTake) return;
    if (frame.header.view == kTakeAndAnswer) frame = test::activations(1, 4);
    // One answer is outstanding at a time: there is credit.
    if (transport->send(back, frame) != SendOutcome::kAccepted)
      std::fprintf(stderr, "answering failed\n");
  }
  void on_lost(ConnectionId, Error) override {}
  void on_credit(ConnectionId) override {}
  void on_garbage(Error what) override { std::fprintf(stderr, "%s\n", what.message.c_str()); }

  Transport* transport = nullptr;
  ConnectionId back;
};

class Measuring final : public TransportEvents {
 public:
  void on_frame(Frame frame) override {
    const Instant now = steady_now();
    const std::lock_guard lock(mutex);
    if (rounds_left > 0) {
      one_way_ns.push_back((now - sent).count() / 2);
      --rounds_left;
      if (rounds_left > 0) {
        sent = steady_now();
        transport->send(to_peer, frame);
        return;
      }
    }
    done = true;
    changed.notify_all();
  }
  void on_lost(ConnectionId, Error why) override {
    std::fprintf(stderr, "lost: %s\n", why.message.c_str());
    std::_Exit(1);
  }
  void on_credit(ConnectionId) override {
    const std::lock_guard lock(mutex);
    credit = true;
    changed.notify_all();
  }
  void on_garbage(Error what) override { std::fprintf(stderr, "%s\n", what.message.c_str()); }

  void wait_done() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    done = false;
  }
  void send(Frame frame) {
    while (transport->send(to_peer, frame) == SendOutcome::kNoCredit) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return std::exchange(credit, false); });
    }
  }

  Transport* transport = nullptr;
  ConnectionId to_peer;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false, credit = false;
  size_t rounds_left = 0;
  Instant sent{};
  std::vector<int64_t> one_way_ns;
};

UcxOptions options_of_bench() {
  UcxOptions options;
  options.key = 1;
  return options;
}

int answer(const char* address) {
  Answering events;
  auto transport = make_ucx_transport(options_of_bench(), events);
  if (!transport.ok()) return std::fprintf(stderr, "%s\n", transport.error().message.c_str()), 1;
  events.transport = transport.value().get();
  events.back = transport.value()->connect(test::from_hex_text(address)).value();
  std::printf("%s\n", test::to_hex_text(transport.value()->address()).c_str());
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

// Starts the answering process; its input stays open until ours ends.
std::string start_peer(const std::string& address) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::exit(1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::string program = "/proc/self/exe", mode = "--answer", argument = address;
  char* arguments[] = {program.data(), mode.data(), argument.data(), nullptr};
  pid_t pid = 0;
  if (posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ) != 0) std::exit(1);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  std::string line;
  for (char byte = 0; read(out[0], &byte, 1) == 1 && byte != '\n';) line += byte;
  return line;
}

Frame frame_for(ViewNumber what, const SharedBuffer& payload) {
  Frame frame = test::activations(1, 4);
  frame.header.view = what;
  frame.header.hidden = static_cast<uint32_t>(payload.size() / sizeof(float));
  frame.payload = payload;
  return frame;
}

double measure_latency(Measuring& events, const SharedBuffer& payload, size_t rounds,
                       std::vector<int64_t>& sorted) {
  events.one_way_ns.clear();
  {
    const std::lock_guard lock(events.mutex);
    events.rounds_left = rounds;
    events.sent = steady_now();
  }
  events.send(frame_for(kEcho, payload));
  events.wait_done();
  sorted = events.one_way_ns;
  std::sort(sorted.begin(), sorted.end());
  double total = 0;
  for (const int64_t value : sorted) total += static_cast<double>(value);
  return total / static_cast<double>(sorted.size());
}

double measure_throughput(Measuring& events, const SharedBuffer& payload, size_t frames) {
  const Instant start = steady_now();
  for (size_t i = 1; i < frames; ++i) events.send(frame_for(kTake, payload));
  events.send(frame_for(kTakeAndAnswer, payload));
  events.wait_done();
  return static_cast<double>(payload.size() * frames) / to_seconds(steady_now() - start) / 1e9;
}

void measure(Measuring& events, size_t bytes, double seconds, bool last) {
  const SharedBuffer payload = test::activations(1, bytes).payload;
  std::vector<int64_t> sorted;
  measure_latency(events, payload, 50, sorted);  // warms buffers and caches
  const double guess = static_cast<double>(sorted[sorted.size() / 2]);
  const auto rounds = static_cast<size_t>(std::clamp(seconds * 1e9 / (2 * guess), 100.0, 100000.0));
  const double mean = measure_latency(events, payload, rounds, sorted);
  const auto at = [&](double q) {
    const auto index = static_cast<size_t>(q * static_cast<double>(sorted.size() - 1));
    return static_cast<double>(sorted[index]) / 1e3;
  };
  measure_throughput(events, payload, 100);
  const double rate = measure_throughput(events, payload, 200);
  const auto frames = static_cast<size_t>(
      std::clamp(seconds * rate * 1e9 / static_cast<double>(bytes), 200.0, 2e6));
  const double throughput = measure_throughput(events, payload, frames);
  fmt::print(
      "    {{\"bytes\": {}, \"round_trips\": {}, \"one_way_us\": {{\"p50\": {:.2f}, \"p99\": "
      "{:.2f}, "
      "\"mean\": {:.2f}}}, \"frames\": {}, \"gigabytes_per_second\": {:.3f}, "
      "\"frames_per_second\": {:.0f}}}{}\n",
      bytes, rounds, at(0.5), at(0.99), mean / 1e3, frames, throughput,
      throughput * 1e9 / static_cast<double>(bytes), last ? "" : ",");
}

}  // namespace

int main(int count, char** arguments) {
  const Result<void> entered = enter_ucx_environment(options_of_bench().network, arguments);
  if (!entered.ok()) return std::fprintf(stderr, "%s\n", entered.error().message.c_str()), 1;
  double seconds = 1;
  std::vector<size_t> sizes = {4 << 10, 64 << 10, 1 << 20};
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    if (name == "--answer") return answer(arguments[i + 1]);
    if (name == "--seconds") seconds = std::atof(arguments[i + 1]);
    if (name == "--sizes") {
      sizes.clear();
      for (const char* at = arguments[i + 1]; *at != 0;) {
        char* end = nullptr;
        sizes.push_back(std::strtoul(at, &end, 10) / 4 * 4);
        if (end == at || sizes.back() == 0 || sizes.back() > kFramePayloadMax)
          return std::fprintf(stderr, "--sizes: expected numbers from 4 to %zu\n",
                              kFramePayloadMax),
                 2;
        at = *end == ',' ? end + 1 : end;
      }
    }
  }
  Measuring events;
  auto transport = make_ucx_transport(options_of_bench(), events);
  if (!transport.ok()) return std::fprintf(stderr, "%s\n", transport.error().message.c_str()), 1;
  events.transport = transport.value().get();
  const std::string peer = start_peer(test::to_hex_text(transport.value()->address()));
  const auto connection = transport.value()->connect(test::from_hex_text(peer));
  if (!connection.ok()) return std::fprintf(stderr, "%s\n", connection.error().message.c_str()), 1;
  events.to_peer = connection.value();
  fmt::print("{{\n  \"benchmark\": \"transport\", \"transport\": \"ucx/tcp\",\n  \"results\": [\n");
  for (const size_t bytes : sizes) measure(events, bytes, seconds, bytes == sizes.back());
  fmt::print("  ]\n}}\n");
  std::fflush(stdout);
  return 0;
}

// Named places on a frame's way through a stage where tests make the process die, freeze or fail.
// Always compiled in; nothing happens unless a fault was armed, and daemons arm one only when they
// were started with --allow-fault-injection.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace troupe {

enum class FaultPoint : uint8_t {
  kArrive,    // a frame arrived, nothing is checked yet
  kAccept,    // it passed the fence
  kCompute,   // the compute thread took it
  kComputed,  // its KV rows are written (and its tokens sampled); nothing is sent
  kSent,      // its result was given to the transport
};
enum class FaultAction : uint8_t {
  kThrow,
  kKill,
  kStop,
  kHang,
  kFlip,  // one bit of a result is wrong
};

struct ArmedFault {
  FaultAction action = FaultAction::kThrow;
  FaultPoint point = FaultPoint::kAccept;
  uint32_t after = 0;  // passes of the point that go well before
};

// "kill", "throw", "stop" (SIGSTOP to its own process) or "hang" (the compute thread never
// finishes), then optionally "@arrive", "@accept", "@compute", "@computed" or "@sent", then
// optionally "+N"; or "flip" (one bit of what a micro-batch computed is wrong), then optionally
// "+N". Errors: kInvalidArgument, with what is allowed.
Result<ArmedFault> parse_fault(const std::string& text);

class FaultPoints {
 public:
  void arm(ArmedFault fault);
  // Any thread. kKill and kStop happen here; the others are the caller's to carry out.
  std::optional<FaultAction> pass(FaultPoint point) {
    if (!armed_.load(std::memory_order_relaxed)) return std::nullopt;
    return strike(point);
  }

 private:
  std::optional<FaultAction> strike(FaultPoint point);

  std::atomic<bool> armed_{false};
  std::mutex mutex_;
  ArmedFault fault_;
};

}  // namespace troupe

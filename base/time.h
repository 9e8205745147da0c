// Time as an argument. Logic never reads a clock: it gets an Instant. Shells read one: CAF's actor
// clock in actors (virtual in tests), steady_now() in threads of their own.
#pragma once

#include <chrono>
#include <cstdint>

namespace troupe {

using Duration = std::chrono::nanoseconds;
// Monotonic, of this process or this host only; never sent to another node.
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

using namespace std::chrono_literals;  // NOLINT: durations are written 25ms everywhere

inline Instant steady_now() {
  return std::chrono::steady_clock::now();
}

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
inline double to_milliseconds(Duration duration) {
  return to_seconds(duration) * 1e3;
}

// Milliseconds since 1970, for records and logs that people read; never for ordering or fencing.
inline int64_t wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace troupe

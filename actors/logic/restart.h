// How often a child may be restarted: OTP's one_for_one supervision. A child that fails is started
// again at once, then after a back-off that doubles with each failure in a row; one that fails more
// than `max_restarts` times within `window` is given up and the failure goes up a level. A child
// that ran for longer than `stable` is started at once again.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <variant>

#include "base/time.h"

namespace troupe {

struct RestartBudget {
  uint32_t max_restarts = 3;
  Duration window = 10s;
  Duration backoff_min = 50ms;
  Duration backoff_max = 2s;
  Duration stable = 2s;  // a child that ran for longer starts at once again
};

struct Restart {
  Duration after;
};
struct GiveUp {
  std::string why;  // "failed 4 times within 10.0 s, allowed are 3 restarts"
};
using RestartDecision = std::variant<Restart, GiveUp>;

class RestartPolicy {
 public:
  explicit RestartPolicy(RestartBudget budget);
  RestartDecision on_failure(Instant now);
  // The child runs. May be called once or as often as one likes; the streak ends when it has run
  // for longer than `stable`.
  void on_success(Instant now);
  uint64_t failures() const { return failures_total_; }

 private:
  RestartBudget budget_;
  std::deque<Instant> failures_;  // within the window
  uint32_t streak_ = 0;
  bool running_ = false;
  Instant running_since_;
  uint64_t failures_total_ = 0;
};

}  // namespace troupe

#include "actors/logic/restart.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe {

RestartPolicy::RestartPolicy(RestartBudget budget) : budget_(budget) {}

void RestartPolicy::on_success(Instant now) {
  if (!running_) {
    running_ = true;
    running_since_ = now;
  }
  if (now - running_since_ > budget_.stable) streak_ = 0;
}

RestartDecision RestartPolicy::on_failure(Instant now) {
  if (running_) on_success(now);  // it ran until now: was that long enough?
  running_ = false;
  ++failures_total_;
  failures_.push_back(now);
  while (now - failures_.front() > budget_.window) failures_.pop_front();
  if (failures_.size() > budget_.max_restarts) {
    const size_t seen = failures_.size();
    // The list never holds more than one above the budget, whoever goes on asking.
    failures_.pop_front();
    return GiveUp{fmt::format("failed {} times within {:.1f} s, allowed are {} restarts", seen,
                              to_seconds(budget_.window), budget_.max_restarts)};
  }
  // At once the first time: somebody waits for it, and most failures do not come back.
  Duration after = streak_ == 0 ? Duration::zero() : budget_.backoff_min;
  for (uint32_t doubled = 1; doubled < streak_ && after < budget_.backoff_max; ++doubled)
    after *= 2;
  ++streak_;
  return Restart{std::min(after, budget_.backoff_max)};
}

}  // namespace troupe

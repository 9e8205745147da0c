#include "tests/integration/sweep_run.h"

#include <fmt/format.h>

namespace troupe::test {
namespace {

constexpr Duration kLookEvery = 25ms;  // at the status; oftener would be a load of its own
constexpr Duration kReplacedMax = 5s;

// Lets go of what is held as soon as others have taken the seats.
class Holder {
 public:
  Holder(SweepCluster& cluster, Disturbance& disturbance, const Strike& strike)
      : cluster_(cluster), disturbance_(disturbance), strike_(strike), held_(disturbance.holds()) {}

  void look() {
    if (!held_ || steady_now() < next_) return;
    next_ = steady_now() + kLookEvery;
    const auto status = cluster_.rpc().status();
    if (!status.ok() || !served_again(status.value(), strike_)) return;
    held_ = false;
    released_ = disturbance_.release();
  }
  // Nobody was replaced, or after the end of the streams: all the same it must come back.
  Result<void> end() {
    const Instant deadline = steady_now() + kReplacedMax;
    while (held_ && steady_now() < deadline) {
      disturbance_.tick(strike_);
      look();
      std::this_thread::sleep_for(2ms);
    }
    TROUPE_TRY_VOID(disturbance_.release());
    if (held_) return Error{ErrorCode::kDeadlineExceeded, "nobody took the seats"};
    return released_;
  }

 private:
  SweepCluster& cluster_;
  Disturbance& disturbance_;
  Strike strike_;
  bool held_;
  Instant next_{};
  Result<void> released_;
};

Result<void> attempt(SweepCluster& cluster, Disturbance& disturbance, uint64_t position,
                     Outcome& outcome) {
  TROUPE_TRY(const ClusterStatus before, cluster.ready());
  TROUPE_TRY_VOID(disturbance.aim(before));
  Streams streams(cluster);
  if (!streams.wait_for(position))
    return Error{ErrorCode::kUnavailable, "the first stream ended before anything was broken"};
  const Result<Strike> strike = disturbance.strike();
  if (!strike.ok()) {
    (void)disturbance.release();
    return strike.error();
  }
  Holder holder(cluster, disturbance, strike.value());
  streams.finish([&] {
    disturbance.tick(strike.value());
    holder.look();
  });
  const auto released = holder.end();
  streams.judge(strike.value(), outcome);
  TROUPE_TRY_VOID(released);
  if (!outcome.failure.empty()) return {};
  TROUPE_TRY(const ClusterStatus after, cluster.ready());
  outcome.split = streams.split(strike.value(), after);
  return disturbance.check(after);
}

}  // namespace

Result<void> check_returned(SweepCluster& cluster, const ClusterStatus& status,
                            const std::string& node, uint64_t old_life) {
  TROUPE_TRY(const Places places, cluster.places(status));
  if (places.life(node) == 0 || places.life(node) == old_life)
    return Error{ErrorCode::kInternal, node + " did not come back in a new life"};
  Heard heard;
  const auto later =
      ask(cluster.client(0), cluster.request(0), [&heard](uint64_t index) { heard.token(index); });
  const Judgement judgement = judge(cluster.reference(0), heard, later);
  if (judgement.verdict == Verdict::kEqual) return {};
  return Error{ErrorCode::kDivergence,
               fmt::format("a later stream {}: {}", to_string(judgement.verdict), judgement.why)};
}

Outcome run_disturbed(SweepCluster& cluster, Disturbance& disturbance, uint64_t position) {
  Outcome outcome;
  const auto done = attempt(cluster, disturbance, position, outcome);
  if (!done.ok()) {
    const std::string why = to_string(done.error());
    outcome.failure += outcome.failure.empty() ? why : "; " + why;
  }
  if (outcome.failure.empty()) return outcome;
  if (cluster.running()) outcome.logs = cluster.cluster().logs();
  const auto ended = cluster.end();
  if (!ended.ok()) outcome.failure += "; then " + to_string(ended.error());
  return outcome;
}

}  // namespace troupe::test

// Answers that are given at once while something is broken, and what came of them.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/sweep.h"
#include "tests/integration/sweep_cluster.h"

namespace troupe::test {

inline constexpr Duration kHungAfter = 40s;  // no stream takes so long, whatever strikes it

// The moment of a disturbance, on both clocks.
struct Strike {
  Instant at{};
  int64_t unix_ms = 0;
};
Strike strike_now();

// Milliseconds: from the strike to the scheduler's note of the loss; to "view N serves"; to the
// first new token of any stream; until all streams have got one.
struct Split {
  double detection = 0, swap = 0, replay = 0, refill = 0;
};

struct Outcome {
  std::string failure{};  // empty: all streams equal, and the cluster whole again
  Tally streams{};
  std::vector<double> pauses_ms{};  // the longest silence of each stream behind the strike
  std::optional<Split> split{};     // if the head's events tell
  std::string logs{};               // of the nodes, if it failed
};

class Streams {
 public:
  // Starts one for each of the cluster's clients.
  explicit Streams(SweepCluster& cluster);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Until the first stream has got this token. False: it ended before.
  bool wait_for(uint64_t token) const;
  // Until all have ended, or are made to. `tick` is called every other millisecond.
  void finish(const std::function<void()>& tick);
  // Adds what came to the outcome.
  void judge(const Strike& strike, Outcome& outcome) const;
  std::optional<Split> split(const Strike& strike, const ClusterStatus& status) const;

 private:
  struct Stream {
    GenerateRequest request;
    Heard heard;
    Result<Answer> answer = Error{ErrorCode::kInternal, "not run"};
    std::atomic<size_t> tokens{0};
    std::atomic<bool> ended{false};
    bool hung = false;
  };
  bool all_ended() const;

  SweepCluster& cluster_;
  std::vector<Stream> streams_;
  std::vector<std::thread> threads_;
};

// Whether the head has noted a loss since, and served behind it.
bool served_again(const ClusterStatus& status, const Strike& strike);

}  // namespace troupe::test

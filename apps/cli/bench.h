// `troupe bench`: load on a running cluster, and what came of it as numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "actors/rpc/status.h"
#include "base/time.h"

namespace troupe::cli {

// One request's life; all instants of this process's monotonic clock.
struct StreamRecord {
  Instant begin{}, end{};
  std::vector<Instant> tokens;  // when each one arrived
  uint32_t prompt_tokens = 0;
  std::string error;  // empty: it went well
};

// Mean of what the status said while the load ran.
struct StageLoad {
  StageStatus last;
  double busy_fraction = 0;
};

struct BenchFigures {
  size_t streams = 0, requests = 0, failed = 0;
  std::string first_error;
  uint64_t prompt_tokens = 0, generated_tokens = 0;
  Duration wall{};
  double tokens_per_second = 0;  // generated, all streams, first request's begin to last one's end
  double stream_tokens_per_second = 0;  // mean over requests, from the first token to the last
  Duration first_token_p50{}, first_token_p99{};
  Duration token_p50{}, token_p99{};  // between two tokens of a request
  std::vector<StageLoad> stages;
};

BenchFigures figures_of(const std::vector<StreamRecord>& records, size_t streams,
                        const std::vector<ClusterStatus>& looks);
std::string bench_text(const BenchFigures& figures);
nlohmann::ordered_json bench_json(const BenchFigures& figures);

}  // namespace troupe::cli

// A request as the ledger keeps it: with the model it fixes every token, so everything else about
// the request is a cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sampling.h"

namespace troupe {

struct RequestRecord {
  RequestId id;
  std::string model;    // deployment name
  std::string profile;  // of the numbers it was started under
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 0;
  SamplingParameters sampling;
  bool ignore_end = false;
  int64_t created_unix_ms = 0;
  std::string finish;  // empty while it runs
};

// A generated token as it was shown.
struct LoggedToken {
  uint32_t token = 0;
  uint64_t logits_digest = 0;
  friend bool operator==(const LoggedToken&, const LoggedToken&) = default;
};
// Some of them, one behind the other.
struct TokenRun {
  RequestId id;
  uint32_t first = 0;  // index of the first among the generated
  std::vector<LoggedToken> tokens;
};

}  // namespace troupe

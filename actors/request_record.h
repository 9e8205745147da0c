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
}  // namespace troupe

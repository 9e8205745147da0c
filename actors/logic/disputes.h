// Executions that disagree. Under the `input` policy every row is executed twice, by the stage and
// by its standby, and what came out is compared. Where that differs one of them is wrong (a flipped
// bit in a cache, in a result, in a weight), and nobody can say which: neither result counts, and
// the request is computed again from what both agreed on. Its third execution decides: whoever said
// what comes out then was right.
//
// Should the same two lives disagree about the same row once more, or the request end before its
// third execution, nobody is right as far as anybody knows: both are named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace troupe {

// The row at `position` of a request came out differently.
struct Dispute {
  uint32_t stage = 0;
  RequestId request;
  uint32_t position = 0;
  Incarnation seat, standby;
  uint64_t seat_outcome = 0, standby_outcome = 0;
};

// This life of a stage computed something wrong, or is one of two of which one did.
struct WrongResult {
  uint32_t stage = 0;
  Incarnation life;
  std::string why;
};

class Disputes {
 public:
  static constexpr size_t kOpenMax = 256;  // more than these are decided without a third execution

  std::vector<WrongResult> on_dispute(const Dispute& dispute);
  // Two executions agreed about the row.
  std::vector<WrongResult> on_agreed(uint32_t stage, const RequestId& request, uint32_t position,
                                     uint64_t outcome);
  std::vector<WrongResult> on_end(const RequestId& request);
  bool empty() const { return open_.empty(); }

 private:
  std::vector<Dispute> open_;  // oldest first
};

}  // namespace troupe

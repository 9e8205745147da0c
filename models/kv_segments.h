// What a stage checks of segments before it believes any of them: everything that can be said
// without looking at their rows or at the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/stage_program.h"

namespace troupe {

struct SegmentLimits {
  uint32_t positions_max = 0;  // of a sequence: the model's context
  uint32_t blocks = 0;         // of the cache
};

class SegmentChecks {
 public:
  explicit SegmentChecks(const SegmentLimits& limits);

  // The number of rows. Afterwards each segment names a sequence and at least one row, its table
  // covers its rows, no block belongs to two sequences, and the segments of one sequence stand
  // together: each goes on where the one before ended (or repeats some of its rows), under the same
  // table or a longer one. Error: kInvalidFrame.
  Result<size_t> check(std::span<const Segment> segments, uint32_t rows_max);
  // Whether the segment goes on with the sequence of the one before it.
  static bool continues(std::span<const Segment> segments, size_t index) {
    return index > 0 && segments[index - 1].sequence == segments[index].sequence;
  }

 private:
  Result<void> check_segment(const Segment& segment, size_t index) const;
  static Result<void> check_continued(std::span<const Segment> segments);
  Result<void> check_repeats(std::span<const Segment> segments);

  const SegmentLimits limits_;
  // Kept to keep their memory.
  std::vector<SequenceId> sequences_;
  std::vector<uint64_t> named_by_;  // by block: the check that named it last
  uint64_t checks_ = 0;
};

}  // namespace troupe

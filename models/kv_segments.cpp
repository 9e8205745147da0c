#include "models/kv_segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/ops.h"

namespace troupe {

namespace {

template <class... Args>
Error invalid_frame(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInvalidFrame, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace

SegmentChecks::SegmentChecks(const SegmentLimits& limits)
    : limits_(limits), named_by_(limits.blocks, 0) {}

Result<size_t> SegmentChecks::check(std::span<const Segment> segments, uint32_t rows_max) {
  uint64_t rows = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    rows += segments[i].rows;
    if (rows > rows_max)
      return invalid_frame("segment {} brings the micro-batch to {} rows, limit {}", i, rows,
                           rows_max);
    TROUPE_TRY_VOID(check_segment(segments[i], i));
  }
  TROUPE_TRY_VOID(check_continued(segments));
  TROUPE_TRY_VOID(check_repeats(segments));
  return static_cast<size_t>(rows);
}

Result<void> SegmentChecks::check_segment(const Segment& segment, size_t index) const {
  if (!segment.sequence) return invalid_frame("segment {} names no sequence", index);
  if (segment.rows == 0)
    return invalid_frame("segment {} has no rows; at least 1 is needed", index);
  const uint64_t end = uint64_t{segment.position} + segment.rows;
  if (end > limits_.positions_max)
    return invalid_frame("segment {} ends at position {}, the model's context is {}", index, end,
                         limits_.positions_max);
  if (segment.blocks.size() > limits_.blocks || segment.blocks.size() * kKvBlockTokens < end)
    return invalid_frame("segment {} has {} kv blocks for {} positions; {} are needed and {} exist",
                         index, segment.blocks.size(), end,
                         (end + kKvBlockTokens - 1) / kKvBlockTokens, limits_.blocks);
  for (const uint32_t block : segment.blocks)
    if (block >= limits_.blocks)
      return invalid_frame("segment {} names kv block {}; there are {}", index, block,
                           limits_.blocks);
  return {};
}

Result<void> SegmentChecks::check_continued(std::span<const Segment> segments) {
  for (size_t i = 1; i < segments.size(); ++i) {
    if (!continues(segments, i)) continue;
    const Segment& before = segments[i - 1];
    const Segment& segment = segments[i];
    if (segment.position < before.position || segment.position > before.position + before.rows)
      return invalid_frame(
          "segment {} goes on with a sequence at position {}; rows [{}, {}) are before it", i,
          segment.position, before.position, before.position + before.rows);
    if (segment.blocks.size() < before.blocks.size() ||
        !std::equal(before.blocks.begin(), before.blocks.end(), segment.blocks.begin()))
      return invalid_frame("segment {} goes on with a sequence under another table of kv blocks",
                           i);
  }
  return {};
}

// Two sequences that name one block, or one that names it twice, would overwrite each other.
Result<void> SegmentChecks::check_repeats(std::span<const Segment> segments) {
  sequences_.clear();
  for (size_t i = 0; i < segments.size(); ++i)
    if (!continues(segments, i)) sequences_.push_back(segments[i].sequence);
  std::sort(sequences_.begin(), sequences_.end());
  const auto twice = std::adjacent_find(sequences_.begin(), sequences_.end());
  if (twice != sequences_.end())
    return invalid_frame("sequence {} is in the micro-batch twice", to_string(*twice));
  ++checks_;
  for (size_t i = 0; i < segments.size(); ++i) {
    const size_t known = continues(segments, i) ? segments[i - 1].blocks.size() : 0;
    for (const uint32_t block : std::span(segments[i].blocks).subspan(known)) {
      if (named_by_[block] == checks_)
        return invalid_frame("kv block {} is named twice in the micro-batch", block);
      named_by_[block] = checks_;
    }
  }
  return {};
}

}  // namespace troupe

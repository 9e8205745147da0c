#include "actors/logic/standby_feed.h"

#include <algorithm>

namespace troupe {

StandbyFeed::StandbyFeed(uint32_t batch_rows, uint32_t frame_rows)
    : batch_rows_(batch_rows), frame_rows_(frame_rows) {}

std::vector<FeedRows> StandbyFeed::next(std::span<const FeedLength> held) {
  std::map<SequenceId, uint32_t> known;
  behind_ = 0;
  uint64_t waiting = 0;  // as KV
  for (const FeedLength& one : held) {
    const uint32_t stored = std::min(watermark(one.sequence), one.length);
    known.emplace(one.sequence, stored);
    behind_ += one.length - stored;
    waiting += one.kv_until - std::min(stored, one.kv_until);
  }
  stored_ = std::move(known);
  std::vector<FeedRows> rows;
  if (under_way_ || waiting < batch_rows_) return rows;
  uint32_t room = frame_rows_;
  for (const FeedLength& one : held) {
    const uint32_t stored = stored_.at(one.sequence);
    const uint32_t taken = std::min(one.kv_until - std::min(stored, one.kv_until), room);
    if (taken == 0) continue;
    rows.push_back({one.sequence, stored, taken});
    room -= taken;
  }
  under_way_ = !rows.empty();
  return rows;
}

void StandbyFeed::on_stored(std::span<const FeedLength> stored) {
  under_way_ = false;
  for (const FeedLength& one : stored) {
    const auto found = stored_.find(one.sequence);
    if (found != stored_.end()) found->second = one.length;
  }
}

uint32_t StandbyFeed::watermark(SequenceId sequence) const {
  const auto found = stored_.find(sequence);
  return found == stored_.end() ? 0 : found->second;
}

}  // namespace troupe

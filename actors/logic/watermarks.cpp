#include "actors/logic/watermarks.h"

#include <algorithm>

namespace troupe {

void Watermarks::on_downstream(SequenceId sequence, uint32_t position) {
  uint32_t& known = downstream_[sequence];
  known = std::max(known, position);
}

std::vector<FeedLength> Watermarks::news(const std::map<SequenceId, uint32_t>& own, bool last,
                                         size_t most) {
  std::vector<FeedLength> news;
  for (const auto& [sequence, held] : own) {
    if (news.size() == most) break;
    uint32_t least = held;
    if (!last) {
      const auto behind = downstream_.find(sequence);
      least = behind == downstream_.end() ? 0 : std::min(held, behind->second);
    }
    const auto known = told_.find(sequence);
    if (least < (known == told_.end() ? 0 : known->second) + Journal::kChunkRows) continue;
    told_[sequence] = least;
    news.push_back({sequence, least});
  }
  return news;
}

void Watermarks::forget(SequenceId sequence) {
  downstream_.erase(sequence);
  told_.erase(sequence);
}

void Watermarks::clear() {
  downstream_.clear();
  told_.clear();
}

}  // namespace troupe

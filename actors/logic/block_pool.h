// The KV blocks of one replica, as numbers. Every stage holds memory for the same `total` blocks of
// 64 positions each; the batcher hands their numbers to sequences, so one pool here stands for the
// memory of all stages.
//
// The lowest free number is given first: the same history always yields the same tables, and a
// replica under light load touches few pages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <vector>

namespace troupe {

class BlockPool {
 public:
  static constexpr uint32_t kBlockPositions = 64;
  // Blocks that hold so many positions.
  static constexpr uint32_t blocks_for(uint32_t positions) {
    return positions / kBlockPositions + (positions % kBlockPositions != 0 ? 1 : 0);
  }

  explicit BlockPool(uint32_t total);

  // The `count` lowest free numbers, ascending; nothing, and no change, if fewer are free.
  std::optional<std::vector<uint32_t>> allocate(uint32_t count);
  // Each must have been allocated and not freed since: that is a promise of the caller's, so it is
  // checked.
  void free(std::span<const uint32_t> blocks);

  uint32_t total() const { return static_cast<uint32_t>(taken_.size()); }
  uint32_t used() const { return total() - available(); }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_;
  std::vector<bool> taken_;  // [block]
};

}  // namespace troupe

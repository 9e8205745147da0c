#include "actors/logic/block_pool.h"

#include "base/check.h"

namespace troupe {

BlockPool::BlockPool(uint32_t total) : taken_(total, false) {
  for (uint32_t block = 0; block < total; ++block) free_.push(block);
}

std::optional<std::vector<uint32_t>> BlockPool::allocate(uint32_t count) {
  if (count > available()) return std::nullopt;
  std::vector<uint32_t> blocks;
  blocks.reserve(count);
  while (blocks.size() < count) {
    blocks.push_back(free_.top());
    taken_[free_.top()] = true;
    free_.pop();
  }
  return blocks;
}

void BlockPool::free(std::span<const uint32_t> blocks) {
  for (const uint32_t block : blocks) {
    TROUPE_CHECK(block < total(), "only blocks of this pool come back to it");
    TROUPE_CHECK(taken_[block], "a block is freed once");
    taken_[block] = false;
    free_.push(block);
  }
}

}  // namespace troupe

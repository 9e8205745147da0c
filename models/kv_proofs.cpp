#include "models/kv_proofs.h"

#include <algorithm>
#include <map>

#include "base/digest.h"

namespace troupe {

KvProofs::KvProofs(std::byte* memory, uint32_t blocks, uint64_t key)
    : blocks_(reinterpret_cast<Block*>(memory)), count_(blocks), key_(key) {}

void KvProofs::own(uint32_t block, SequenceId sequence, uint32_t index) {
  if (blocks_ == nullptr) return;
  Block& one = blocks_[block];
  if (one.sequence == sequence.value && one.index == index) return;
  std::fill(std::begin(one.digests), std::end(one.digests), 0);
  one.index = index;
  one.sequence = sequence.value;
}

void KvProofs::disown(uint32_t block) {
  if (blocks_ != nullptr) blocks_[block].sequence = 0;
}

uint64_t KvProofs::digest(const Block& block, uint32_t row, ByteSpan bytes) const {
  const uint64_t place[3] = {key_, block.sequence, uint64_t{block.index} * kKvBlockTokens + row};
  const uint64_t digest = digest64(bytes, digest64(std::as_bytes(std::span(place))));
  return digest == 0 ? 1 : digest;
}

void KvProofs::commit(uint32_t block, uint32_t row, ByteSpan bytes) {
  blocks_[block].digests[row] = digest(blocks_[block], row, bytes);
}

bool KvProofs::proves(uint32_t block, uint32_t row, ByteSpan bytes) const {
  return blocks_[block].digests[row] == digest(blocks_[block], row, bytes);
}

std::vector<KvProofs::Claim> KvProofs::claims() const {
  std::map<SequenceId, std::map<uint32_t, uint32_t>> by_index;
  for (uint32_t block = 0; block < count_; ++block)
    if (blocks_[block].sequence != 0)
      by_index[SequenceId{blocks_[block].sequence}].emplace(blocks_[block].index, block);
  std::vector<Claim> claims;
  for (const auto& [sequence, blocks] : by_index) {
    Claim claim{sequence, {}};
    for (const auto& [index, block] : blocks) {
      if (index != claim.table.size()) break;
      claim.table.push_back(block);
    }
    if (!claim.table.empty()) claims.push_back(std::move(claim));
  }
  return claims;
}

}  // namespace troupe

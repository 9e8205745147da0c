// What lets the successor of a stage process believe the KV memory that its predecessor left: for
// each block whose it is, and for each row a digest of its bytes, bound to the sequence, the
// position and a key that names model, layers and batcher. The memory may have been scribbled on by
// whatever ended the predecessor, at any instruction, so nothing in it is trusted: a row counts
// only if its digest proves it, and no order of writes matters. Rows of another key, of an earlier
// owner of the block, half written or damaged simply do not prove themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "kernels/ops.h"

namespace troupe {

// Memory that outlives the process: a descriptor (borrowed, of a memory file), and the key.
struct KeptMemory {
  int descriptor = -1;  // none: the cache's memory is the process's own
  uint64_t key = 0;     // rows of another key are never believed
};

class KvProofs {
 public:
  struct Block {
    uint64_t sequence;  // 0: nobody's
    uint32_t index;     // in the sequence's table
    uint32_t unused;
    uint64_t digests[kKvBlockTokens];  // by row; 0: not committed
  };
  static uint64_t bytes(uint32_t blocks) { return uint64_t{blocks} * sizeof(Block); }

  KvProofs() = default;  // keeps nothing: for memory that does not outlive the process
  // `memory` has bytes(blocks) and lives as long as this.
  KvProofs(std::byte* memory, uint32_t blocks, uint64_t key);
  explicit operator bool() const { return blocks_ != nullptr; }

  // The block is the sequence's from now on, at this place in its table. Changes nothing if it was.
  void own(uint32_t block, SequenceId sequence, uint32_t index);
  void disown(uint32_t block);
  // The row was written.
  void commit(uint32_t block, uint32_t row, ByteSpan bytes);
  // Whether the row is what was committed there; `touched` tells whether anything was.
  bool proves(uint32_t block, uint32_t row, ByteSpan bytes) const;
  bool touched(uint32_t block, uint32_t row) const { return blocks_[block].digests[row] != 0; }

  // What the blocks say of themselves: by sequence its blocks in order of their index, without
  // holes from 0 on. Not proven yet.
  struct Claim {
    SequenceId sequence;
    std::vector<uint32_t> table;
  };
  std::vector<Claim> claims() const;

 private:
  uint64_t digest(const Block& block, uint32_t row, ByteSpan bytes) const;

  Block* blocks_ = nullptr;
  uint32_t count_ = 0;
  uint64_t key_ = 0;
};

}  // namespace troupe

// Keys and values of one stage's layers, and how far each sequence has filled them.
//
// The batcher decides which blocks a sequence owns; the cache remembers what it was told and
// believes its own memory over a message. So a batcher's mistake or a late, repeated micro-batch
// costs a replay, never a wrong answer:
//   - a block that a second sequence claims belongs to it from then on, and the first sequence is
//   forgotten: its next
//     input lies above its length 0 and is refused as a gap;
//   - where a sequence's block table changes, it keeps only the positions in front of the change.
// Rows below a sequence's length are re-executed but not stored again (recovery invariant I5).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "models/kv_proofs.h"
#include "models/stage_program.h"

namespace troupe {

struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t blocks = 0;  // of kKvBlockTokens positions
};

class KvCache {
 public:
  static constexpr uint64_t kBytesMax = uint64_t{1} << 46;

  static constexpr uint64_t kRowBytesMax = uint64_t{1} << 30;

  // Address space is reserved at once, in huge pages where the kernel grants them; memory comes as
  // it is written. Errors: kInvalidArgument (a zero in the shape, or more than kBytesMax or
  // kRowBytesMax), kResourceExhausted (no memory).
  static Result<KvCache> allocate(const KvShape& shape);
  // In memory that outlives this process, with what can be proven of what is there already (the
  // sequences of a predecessor). Errors: as above, kIo.
  static Result<KvCache> open(const KvShape& shape, const KeptMemory& memory);
  // Blocks found by open() with a row that was committed and is not what it was.
  uint32_t blocks_rejected() const { return blocks_rejected_; }

  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache();

  // `index` counts this stage's layers from 0.
  KvLayer layer(uint32_t index) const;
  uint32_t blocks() const { return shape_.blocks; }
  uint64_t bytes() const { return bytes_; }
  // Of one position: its keys and values in all layers.
  uint32_t row_bytes() const { return shape_.layers * 2 * half_row_bytes(); }

  // Positions held of a sequence; 0 if it is unknown.
  uint32_t length(SequenceId sequence) const;
  // Positions that would be held under this block table: the same, cut where the tables differ.
  uint32_t length_under(SequenceId sequence, std::span<const uint32_t> table) const;

  // Sequences of which rows are held, ascending.
  std::vector<SequenceHolding> holdings() const;

  // Rows from `position` on, as many as the bytes are: [row][layer][keys, values][kv_heads *
  // head_dim] float16. The table covers them and its indexes are below blocks(). Writing comes
  // between claim() and filled().
  void read_rows(std::span<const uint32_t> table, uint32_t position,
                 std::span<std::byte> rows) const;
  // The first of the rows that read_rows() gave which is not what was written, as far as the memory
  // can tell: a bit of it must have flipped since.
  std::optional<uint32_t> damaged_row(std::span<const uint32_t> table, uint32_t position,
                                      ByteSpan rows) const;
  void write_rows(std::span<const uint32_t> table, uint32_t position, ByteSpan rows);

  // Makes the table the sequence's own, before rows are written. Every index is below blocks().
  void claim(SequenceId sequence, std::span<const uint32_t> table);
  // Positions [0, end) are written now; a smaller end than the length changes nothing.
  void filled(SequenceId sequence, uint32_t end);
  void forget(SequenceId sequence);
  void clear();

 private:
  struct Held {
    uint32_t length = 0;
    std::vector<uint32_t> table;
  };
  struct IdHash {
    size_t operator()(SequenceId id) const { return std::hash<uint64_t>{}(id.value); }
  };

  static Result<uint64_t> check(const KvShape& shape);
  KvCache(const KvShape& shape, std::byte* memory, uint64_t bytes);
  void take_over(const KvProofs::Claim& claim);
  uint32_t half_row_bytes() const { return shape_.kv_heads * shape_.head_dim * 2; }

  KvShape shape_;
  std::byte* memory_ = nullptr;  // [layer][keys, values][block]…
  uint64_t bytes_ = 0;
  std::unordered_map<SequenceId, Held, IdHash> held_;
  std::vector<SequenceId> owners_;  // by block; 0 is nobody
  KvProofs proofs_;                 // behind the pages; empty for memory of our own
  uint64_t mapped_ = 0;             // bytes, with the proofs
  uint32_t blocks_rejected_ = 0;
  std::vector<std::byte> row_;  // scratch
};

}  // namespace troupe

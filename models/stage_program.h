// The seam between actors and arithmetic: what a stage runs. TransformerStage implements it; a new
// kind of model is a new program, and actors do not change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/sampling.h"

namespace troupe {

// Consecutive positions of one sequence inside a micro-batch.
struct Segment {
  SequenceId sequence;
  uint32_t position = 0;         // of its first row
  uint32_t rows = 0;             // at least 1
  std::vector<uint32_t> blocks;  // KV block table; covers [0, position + rows)
  bool sample = false;           // the last stage samples the token that follows the last row
  SamplingParameters sampling;
};

struct MicroBatch {
  MicroBatchId id;
  // Rows of the micro-batch in this order. Segments of one sequence stand together, each going on
  // where the one before ended.
  std::vector<Segment> segments;
  std::vector<SequenceId> released;  // sequences that end here: forget them after running
  uint32_t rows() const {
    uint32_t sum = 0;
    for (const Segment& segment : segments) sum += segment.rows;
    return sum;
  }
};

struct SampledToken {
  SequenceId sequence;
  uint32_t position = 0;  // the sampled token's own position: one past the segment's last row
  uint32_t token = 0;
  uint64_t logits_digest = 0;  // XXH3 of the logits' bytes: equal digests, equal bits
};

struct StageOutput {
  SharedBuffer hidden;  // [rows][hidden] float32; empty from the last stage
  std::vector<SampledToken>
      sampled;  // from the last stage, one per sampling segment, in their order
};

struct StageMemory {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;
};

// How much of a sequence a stage holds: positions [0, length).
struct SequenceHolding {
  SequenceId sequence;
  uint32_t length = 0;
  std::vector<uint32_t> blocks;  // its KV block table
};

class StageProgram {
 public:
  virtual ~StageProgram() = default;

  // Executes a micro-batch. `tokens` [rows] for the first stage, else empty; `hidden`
  // [rows][hidden] float32 for the others, else empty. Position-addressed and idempotent
  // (recovery.md I5): rows below the sequence's KV length re-execute and give the same bytes.
  // Errors, none of which changes state: kInvalidFrame (shapes, token ids, blocks out of range,
  // rows over the limit), kConflict (a position above the KV length: the gap must be replayed
  // first).
  virtual Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t> tokens,
                                  const SharedBuffer& hidden) = 0;

  // Forgets all sequences, as at the start: another batcher numbers its sequences anew.
  virtual void reset() = 0;
  // Positions held of a sequence; 0 if it is unknown.
  virtual uint32_t kv_length(SequenceId sequence) const = 0;
  // All sequences of which anything is held, in ascending order of id.
  virtual std::vector<SequenceHolding> holdings() const = 0;

  // What a standby follows: the rows of the KV cache itself.
  // Bytes of one position's keys and values over all layers of this stage; a multiple of 4.
  virtual uint32_t kv_row_bytes() const = 0;
  // Rows of these segments one behind the other, [row][layer][keys, values] float16. Of a segment
  // only sequence, position, rows and blocks count. Errors: kInvalidFrame (shapes), kConflict (a
  // segment reaches beyond what is held), kInternal (a row is not what was written: nothing that is
  // held can be trusted).
  virtual Result<SharedBuffer> read_kv(std::span<const Segment> segments) const = 0;
  // Stores what read_kv() of an equal stage gave; rows that are held already are left as they are.
  // Errors, none of which changes state: as run().
  virtual Result<void> write_kv(std::span<const Segment> segments, ByteSpan rows) = 0;
  virtual StageMemory memory() const = 0;
};

}  // namespace troupe

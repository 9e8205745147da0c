// What a stage forwards to its standby under the `input` policy: every piece of input it executed,
// with the digests of what came out, until the standby has executed it, too, and says that the same
// came out. Pieces keep the order of execution, across sequences: KV blocks change hands in that
// order.
//
// The standby lags by what is under way; the batcher bounds that (BatchingLimits::unchecked_max).
// Should that be too much memory, the sequence with the oldest piece is given up: the standby gets
// its rows from the KV cache, is told so, and lets them pass unchecked, because somebody waits.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/sampling.h"

namespace troupe {

// Consecutive rows of one sequence, as they were executed.
struct InputPiece {
  SequenceId sequence;
  uint32_t position = 0;
  uint32_t rows = 0;
  std::vector<uint32_t> blocks;
  bool sample = false;
  SamplingParameters sampling;
  std::vector<uint32_t> tokens;    // [rows] at the first stage, else empty
  SharedBuffer hidden;             // [rows][hidden] float32 at the others, else empty
  std::vector<uint64_t> outcomes;  // [rows]: digest of each output row; 0: nothing came out of it

  uint32_t end() const { return position + rows; }
  size_t bytes() const {
    return hidden.size() + 4 * tokens.size() + 4 * blocks.size() + 8 * outcomes.size();
  }
};

class InputLog {
 public:
  explicit InputLog(size_t bytes_max) : bytes_max_(bytes_max) {}

  // A sequence whose KV blocks this piece has now is over, even if nobody said so yet.
  void append(InputPiece piece);
  // Where the standby has to be for the log to cover the rest: the position of the sequence's
  // oldest piece; nothing if there is none.
  std::optional<uint32_t> first(SequenceId sequence) const;
  // The oldest pieces that the standby can execute, at most `rows_max` rows but at least one piece.
  // `stored`: what it holds. Sequences whose next piece starts behind that wait for KV rows.
  // Pieces of one sequence stand together, in order.
  std::vector<InputPiece> next(const std::map<SequenceId, uint32_t>& stored,
                               uint32_t rows_max) const;
  // The standby executed everything below `position`, and the same came out.
  void checked(SequenceId sequence, uint32_t position);
  void forget(SequenceId sequence);
  void clear();
  // Some of its rows were dropped for want of memory and will never be checked.
  bool gave_up(SequenceId sequence) const { return given_up_.contains(sequence); }

  uint64_t rows() const { return rows_; }
  size_t bytes() const { return bytes_; }

 private:
  template <class Condition>
  void drop_if(Condition condition);

  const size_t bytes_max_;
  std::deque<InputPiece> pieces_;
  std::map<uint32_t, SequenceId> owners_;  // by KV block, of the newest piece that has it
  std::set<SequenceId> given_up_;
  size_t bytes_ = 0;
  uint64_t rows_ = 0;
};

}  // namespace troupe

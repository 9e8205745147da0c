// What a stage keeps of its own output (J_k of recovery.md): the rows it sent to the next stage, by
// sequence and position. When the next stage loses its KV cache, or a standby takes its seat and
// lacks the last rows, they come from here, and no stage before this one computes anything again.
//
// Rows are exact and belong to no view, so a journal outlives view changes; it ends with the
// batcher's life, because another batcher numbers its sequences anew. It may be dropped at any
// time, from the front, for want of memory: the next longer log (in the end the token log) covers
// the gap, and it costs time (I6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"

namespace troupe {

class Journal {
 public:
  static constexpr uint32_t kChunkRows = 64;

  // Positions [first, end); empty if nothing is kept.
  struct Range {
    uint32_t first = 0;
    uint32_t end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  // Keeps at most `bytes_max` bytes of rows of `row_bytes` each (at least 1).
  Journal(size_t bytes_max, size_t row_bytes);

  // Rows from `position` on. What is known already is left as it is (the same input gives the same
  // bytes); rows behind a hole start the sequence's journal anew, because what is in front of a
  // hole helps nobody.
  void append(SequenceId sequence, uint32_t position, std::span<const std::byte> rows);
  // Copies `rows` rows from `position` on into `out`, which has their size. False if they are not
  // all kept.
  bool read(SequenceId sequence, uint32_t position, uint32_t rows, std::span<std::byte> out) const;
  Range range(SequenceId sequence) const;
  // Every receiver downstream has the positions below `watermark` for good (I6, I7).
  void trim(SequenceId sequence, uint32_t watermark);
  void forget(SequenceId sequence);
  void clear();

  size_t row_bytes() const { return row_bytes_; }
  size_t bytes() const { return bytes_; }
  uint64_t chunks_dropped() const { return chunks_dropped_; }  // for want of memory

 private:
  struct Entry {
    uint32_t first = 0;
    uint32_t end = 0;
    std::deque<std::vector<std::byte>> chunks;  // of kChunkRows rows, the last one shorter
  };
  void drop_first_chunk(Entry& entry);
  void make_room();

  const size_t bytes_max_;
  const size_t row_bytes_;
  size_t bytes_ = 0;
  uint64_t chunks_dropped_ = 0;
  std::map<SequenceId, Entry> entries_;
};

}  // namespace troupe

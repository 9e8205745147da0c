// What a stage sends its standby: rows of its own KV cache, so that the standby can take the seat
// with almost nothing missing. Under the `input` policy these are only the rows that the input log
// (input_log.h) does not cover; the rest the standby computes itself. One frame is under way at a
// time; while it is, rows gather, so the rate adapts to what the standby can take and nothing
// queues.
//
// A watermark moves only on the standby's own acknowledgement, after it stored the rows (I7).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"

namespace troupe {

// How much of a sequence is held: by the stage, or by its standby.
struct FeedLength {
  SequenceId sequence;
  uint32_t length = 0;
  uint32_t kv_until = length;  // rows behind this one are not to be sent as KV
};
// Rows to send now.
struct FeedRows {
  SequenceId sequence;
  uint32_t position = 0;
  uint32_t rows = 0;
};

class StandbyFeed {
 public:
  // Sends when at least `batch_rows` rows wait, at most `frame_rows` a frame.
  StandbyFeed(uint32_t batch_rows, uint32_t frame_rows);

  // What to send next; empty while a frame is under way or too little waits. `held` is what the
  // stage holds now, ascending by sequence; sequences that are not in it are forgotten.
  std::vector<FeedRows> next(std::span<const FeedLength> held);
  // The standby's word about every sequence of the frame: what it holds now, be it less than was
  // sent (it refused a gap: those rows are sent again).
  void on_stored(std::span<const FeedLength> stored);
  // The frame under way will not be answered: it was of a view that is gone, or is overdue.
  void on_lost() { under_way_ = false; }
  // Another kind of frame was sent that the standby answers in the same way.
  void on_sent() { under_way_ = true; }
  bool under_way() const { return under_way_; }

  // Rows that the stage held at the last next() and the standby has not acknowledged.
  uint64_t behind() const { return behind_; }
  // Positions below are stored for good; 0 if the sequence is unknown.
  uint32_t watermark(SequenceId sequence) const;
  // Of all sequences that the stage held at the last next().
  const std::map<SequenceId, uint32_t>& watermarks() const { return stored_; }

 private:
  const uint32_t batch_rows_, frame_rows_;
  std::map<SequenceId, uint32_t> stored_;
  uint64_t behind_ = 0;
  bool under_way_ = false;
};

}  // namespace troupe

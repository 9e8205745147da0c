// The `input` policy: a stage sends its standby every input it executed, with digests of what came
// out; the standby executes it, too, compares, and tells the batcher, which shows nobody what only
// one of them computed.
#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/dataplane/stage_port.h"
#include "base/digest.h"
#include "base/log.h"

namespace troupe {
namespace {

// One digest a row of what came out of a micro-batch, in the order of its rows: of the hidden
// values; at the last stage of the token and the logits it was drawn from, 0 where none was.
std::vector<uint64_t> outcomes_of(const std::vector<FrameSegment>& segments,
                                  const StageOutput& output) {
  uint64_t rows = 0;
  for (const FrameSegment& segment : segments) rows += segment.rows;
  std::vector<uint64_t> outcomes(rows, 0);
  if (rows == 0) return outcomes;
  if (!output.hidden.empty()) {
    const size_t bytes = output.hidden.size() / rows;
    for (size_t r = 0; r < rows; ++r)
      outcomes[r] = digest64(output.hidden.view().subspan(r * bytes, bytes));
    return outcomes;
  }
  size_t end = 0;
  auto sampled = output.sampled.begin();
  for (const FrameSegment& segment : segments) {
    end += segment.rows;
    if (!segment.sample || sampled == output.sampled.end()) continue;
    const uint64_t drawn[] = {sampled->token, sampled->logits_digest};
    outcomes[end - 1] = digest64(std::as_bytes(std::span(drawn)));
    ++sampled;
  }
  return outcomes;
}

}  // namespace

// Under mutex_: the micro-batch was executed in its seat.
void StagePort::log_input(const FramePtr& frame, const StageOutput& output) {
  if (!inputs_) return;
  const std::vector<FrameSegment>& segments = frame->header.segments;
  const std::vector<uint64_t> outcomes = outcomes_of(segments, output);
  const size_t row_bytes = outcomes.empty() ? 0 : frame->payload.size() / outcomes.size();
  size_t row = 0;
  for (const FrameSegment& segment : segments) {
    const size_t first = std::exchange(row, row + segment.rows);
    if (disputed_.contains(segment.sequence)) continue;
    const auto from = outcomes.begin() + static_cast<ptrdiff_t>(first);
    InputPiece piece{.sequence = segment.sequence,
                     .position = segment.position,
                     .rows = segment.rows,
                     .blocks = segment.blocks,
                     .sample = segment.sample,
                     .sampling = segment.sampling,
                     .tokens = segment.tokens,
                     .hidden = {},
                     .outcomes = {from, from + segment.rows}};
    if (row_bytes > 0) {
      piece.hidden = SharedBuffer::allocate(segment.rows * row_bytes);
      std::memcpy(piece.hidden.mutable_data(), frame->payload.data() + first * row_bytes,
                  piece.hidden.size());
    }
    inputs_->append(std::move(piece));
  }
  for (const SequenceId sequence : frame->header.released) {
    inputs_->forget(sequence);
    disputed_.erase(sequence);
    if (feed_released_.size() < kFrameSegmentsMax) feed_released_.push_back(sequence);
  }
}

// Under mutex_. Whether anything was sent.
bool StagePort::feed_input() {
  if (!inputs_ || feed_->under_way()) return false;
  const std::vector<InputPiece> pieces = inputs_->next(feed_->watermarks(), kCheckRowsMax);
  if (pieces.empty() && feed_released_.empty()) return false;
  Frame frame =
      frame_to(FrameKind::kInputRows, standby_->seat.incarnation, view_.number, MicroBatchId{});
  size_t bytes = 0, rows = 0;
  for (const InputPiece& piece : pieces) {
    bytes += piece.hidden.size();
    rows += piece.rows;
  }
  frame.payload = SharedBuffer::allocate(bytes);
  if (bytes > 0) frame.header.hidden = static_cast<uint32_t>(bytes / sizeof(float) / rows);
  size_t start = 0;
  for (const InputPiece& piece : pieces) {
    if (!piece.hidden.empty())
      std::memcpy(frame.payload.mutable_data() + start, piece.hidden.data(), piece.hidden.size());
    start += piece.hidden.size();
    FrameSegment out;
    out.sequence = piece.sequence;
    out.position = piece.position;
    out.rows = piece.rows;
    out.blocks = piece.blocks;
    out.tokens = piece.tokens;
    out.sample = piece.sample;
    out.sampling = piece.sampling;
    out.outcomes = piece.outcomes;
    frame.header.segments.push_back(std::move(out));
  }
  frame.header.released = std::exchange(feed_released_, {});
  send(standby_->seat.data_address, std::move(frame));
  feed_->on_sent();
  return true;
}

// As standby, on the compute thread.
void StagePort::check_input(const FramePtr& frame, const Result<StageOutput>& output,
                            StageProgram& program) {
  const FrameHeader& input = frame->header;
  const std::lock_guard lock(mutex_);
  if (input.view != view_.number || role_ != Role::kStandby) return;
  for (const SequenceId sequence : input.released) checked_.erase(sequence);
  if (output.ok()) {
    compare(input.segments, outcomes_of(input.segments, output.value()));
  } else {
    log_debug("stage", "the standby could not execute rows: {}", to_string(output.error()));
    // A gap shows in the lengths, and is filled. Anything else the stage could execute, and nothing
    // came out here.
    if (output.error().code != ErrorCode::kConflict) {
      size_t rows = 0;
      for (const FrameSegment& segment : input.segments) rows += segment.rows;
      compare(input.segments, std::vector<uint64_t>(rows, 0));
    }
  }
  answer_lengths(input, program);
}

// Under mutex_. Of a sequence in dispute nothing counts any more: the batcher lets it start anew
// under another id.
void StagePort::compare(const std::vector<FrameSegment>& segments,
                        const std::vector<uint64_t>& outcomes) {
  Frame answer = frame_to(FrameKind::kChecked, view_.batcher, view_.number, MicroBatchId{});
  size_t row = 0;
  for (const FrameSegment& segment : segments) {
    const size_t first = std::exchange(row, row + segment.rows);
    FrameSegment& known = checked_[segment.sequence];
    if (known.disputed) continue;
    const auto own = outcomes.begin() + static_cast<ptrdiff_t>(first);
    const auto same = std::mismatch(segment.outcomes.begin(), segment.outcomes.end(), own).first;
    FrameSegment out;
    out.sequence = segment.sequence;
    out.position = segment.position;
    out.outcomes.assign(segment.outcomes.begin(), same);
    out.rows = static_cast<uint32_t>(out.outcomes.size());
    out.disputed = same != segment.outcomes.end();
    if (out.disputed) {
      out.seat_outcome = *same;
      out.standby_outcome = own[out.rows];
      log_error("stage",
                "position {} of sequence {} came out differently: {} at the stage, {} here",
                out.position + out.rows, to_string(out.sequence), to_hex(out.seat_outcome),
                to_hex(out.standby_outcome));
    }
    // How far it came out the same, be it that earlier rows were executed once more.
    const uint32_t end = out.position + out.rows;
    const uint32_t reached = out.disputed ? end : std::max(known.position, end);
    known = out;
    known.position = reached;
    known.rows = 0;
    known.outcomes.clear();
    answer.header.segments.push_back(std::move(out));
  }
  if (!answer.header.segments.empty()) send(view_.batcher_address, std::move(answer));
  // Sequences count upwards: the first are the oldest, and their release was lost.
  while (checked_.size() > kFrameSegmentsMax) checked_.erase(checked_.begin());
}

// Under mutex_. The same once more, in short: an answer that was lost would hold tokens back for
// ever.
void StagePort::say_checked() {
  said_checked_ = now_;
  if (checked_.empty()) return;
  Frame answer = frame_to(FrameKind::kChecked, view_.batcher, view_.number, MicroBatchId{});
  for (const auto& [sequence, segment] : checked_) answer.header.segments.push_back(segment);
  send(view_.batcher_address, std::move(answer));
}

}  // namespace troupe

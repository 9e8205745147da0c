// A stage's part in recovery: it says what it holds, sends what it keeps in its journal, and feeds
// its standby rows of the KV cache or takes them. stage_checks.cpp has the other kind of feed.
#include <algorithm>

#include "actors/dataplane/stage_port.h"
#include "base/log.h"

namespace troupe {
namespace {

std::vector<Segment> segments_of(const FrameHeader& header) {
  std::vector<Segment> segments;
  segments.reserve(header.segments.size());
  for (const FrameSegment& segment : header.segments)
    segments.push_back({.sequence = segment.sequence,
                        .position = segment.position,
                        .rows = segment.rows,
                        .blocks = segment.blocks,
                        .sample = false,
                        .sampling = {}});
  return segments;
}

}  // namespace

// On the compute thread: behind every micro-batch of the views before.
StageHeld StagePort::held(StageProgram& program) {
  StageHeld held{.stage = options_.stage, .sequences = {}};
  const std::lock_guard lock(mutex_);
  for (const SequenceHolding& holding : program.holdings()) {
    if (held.sequences.size() == kSequencesHeldMax) break;
    const Journal::Range kept = journal_ ? journal_->range(holding.sequence) : Journal::Range{};
    held.sequences.push_back({holding.sequence, holding.length, kept.first, kept.end});
  }
  return held;
}

// Under mutex_.
void StagePort::keep_output(const FrameHeader& input, const StageOutput& output) {
  uint64_t rows = 0;
  for (const FrameSegment& segment : input.segments) rows += segment.rows;
  if (!last() && rows > 0 && options_.journal_bytes_max > 0) {
    const size_t row_bytes = output.hidden.size() / rows;
    if (!journal_) journal_ = std::make_unique<Journal>(options_.journal_bytes_max, row_bytes);
    size_t start = 0;
    for (const FrameSegment& segment : input.segments) {
      const size_t bytes = segment.rows * row_bytes;
      journal_->append(segment.sequence, segment.position,
                       output.hidden.view().subspan(start, bytes));
      start += bytes;
    }
  }
  for (const SequenceId sequence : input.released) {
    watermarks_.forget(sequence);
    if (journal_) journal_->forget(sequence);
  }
}

// Under mutex_, on the transport's thread: the next stage lacks these rows.
void StagePort::replay(const FramePtr& frame) {
  const FrameHeader& order = frame->header;
  uint64_t rows = 0;
  for (const FrameSegment& segment : order.segments) rows += segment.rows;
  const size_t row_bytes = journal_ ? journal_->row_bytes() : 0;
  // What is asked for is bounded by what is kept, so a wrong order takes no memory.
  bool kept = journal_ != nullptr && rows > 0 && rows * row_bytes <= kFramePayloadMax;
  for (const FrameSegment& segment : order.segments) {
    const Journal::Range range = journal_ ? journal_->range(segment.sequence) : Journal::Range{};
    kept = kept && segment.position >= range.first &&
           uint64_t{segment.position} + segment.rows <= range.end;
  }
  if (!kept)
    return refuse(order, Error{ErrorCode::kConflict, "the journal does not hold these rows"});
  SharedBuffer hidden = SharedBuffer::allocate(rows * row_bytes);
  const std::span<std::byte> out{hidden.mutable_data(), hidden.size()};
  size_t start = 0;
  for (const FrameSegment& segment : order.segments) {
    const size_t bytes = segment.rows * row_bytes;
    journal_->read(segment.sequence, segment.position, segment.rows, out.subspan(start, bytes));
    start += bytes;
  }
  send_next(order, std::move(hidden));
}

// A view was installed. Stage and standby do that in any order, and what one of them sends before
// the other has done so is dropped: so both begin, and whoever is the later one is heard.
void StagePort::resume_feed(StageProgram& program) {
  {
    const std::lock_guard lock(mutex_);
    if (role_ == Role::kStandby) {
      FrameHeader all;
      all.sender = view_.seats[options_.stage].incarnation;
      for (const SequenceHolding& holding : program.holdings()) {
        if (all.segments.size() == kFrameSegmentsMax) break;
        FrameSegment segment;
        segment.sequence = holding.sequence;
        all.segments.push_back(std::move(segment));
      }
      return answer_lengths(all, program);
    }
  }
  feed_standby(program);
}

// Rows of the KV cache first: what the standby executes comes behind them.
void StagePort::feed_standby(StageProgram& program) {
  const std::lock_guard lock(mutex_);
  if (!feed_ || standby_ == nullptr) return;
  if (feed_rows(program, program.holdings()) || feed_input()) feed_sent_ = now_;
}

// What the input log has need not be sent as KV; of what is in dispute nothing is sent.
std::vector<FeedLength> StagePort::feed_lengths(
    const std::vector<SequenceHolding>& holdings) const {
  std::vector<FeedLength> lengths;
  lengths.reserve(holdings.size());
  for (const SequenceHolding& holding : holdings) {
    if (disputed_.contains(holding.sequence)) continue;
    FeedLength length{holding.sequence, holding.length};
    if (inputs_) length.kv_until = inputs_->first(holding.sequence).value_or(holding.length);
    lengths.push_back(length);
  }
  return lengths;
}

bool StagePort::feed_rows(StageProgram& program, const std::vector<SequenceHolding>& holdings) {
  const std::vector<FeedRows> wanted = feed_->next(feed_lengths(holdings));
  if (wanted.empty()) return false;
  std::vector<Segment> segments;
  for (const FeedRows& rows : wanted) {
    const auto holding =
        std::find_if(holdings.begin(), holdings.end(),
                     [&](const SequenceHolding& one) { return one.sequence == rows.sequence; });
    segments.push_back({.sequence = rows.sequence,
                        .position = rows.position,
                        .rows = rows.rows,
                        .blocks = holding->blocks,
                        .sample = false,
                        .sampling = {}});
  }
  auto rows = program.read_kv(segments);
  if (!rows.ok()) {
    log_error("stage", "cannot read rows for the standby: {}", to_string(rows.error()));
    feed_->on_lost();
    // Another life looks at every row before it believes it.
    if (rows.error().code == ErrorCode::kInternal) options_.fail(rows.error().message);
    return false;
  }
  Frame frame =
      frame_to(FrameKind::kKvRows, standby_->seat.incarnation, view_.number, MicroBatchId{});
  frame.header.hidden = program.kv_row_bytes() / 4;
  for (const Segment& segment : segments) {
    FrameSegment out;
    out.sequence = segment.sequence;
    out.position = segment.position;
    out.rows = segment.rows;
    out.blocks = segment.blocks;
    out.sample = inputs_ && inputs_->gave_up(segment.sequence);
    if (out.sample)
      log_warning("stage", "rows [{}, {}) of sequence {} go unchecked: the input log is full",
                  out.position, out.position + out.rows, to_string(out.sequence));
    frame.header.segments.push_back(std::move(out));
  }
  frame.payload = std::move(rows).value();
  send(standby_->seat.data_address, std::move(frame));
  return true;
}

// As standby, on the compute thread. What was refused shows in the lengths that are answered.
void StagePort::store_rows(const FramePtr& frame, StageProgram& program) {
  const auto outcome = program.write_kv(segments_of(frame->header), frame->payload.view());
  if (!outcome.ok())
    log_debug("stage", "the standby did not take rows: {}", to_string(outcome.error()));
  const std::lock_guard lock(mutex_);
  if (frame->header.view != view_.number || role_ != Role::kStandby) return;
  bool pass = false;
  for (const FrameSegment& segment : frame->header.segments) {
    if (!segment.sample || !outcome.ok()) continue;
    FrameSegment& known = checked_[segment.sequence];
    known.sequence = segment.sequence;
    known.position = std::max(known.position, segment.position + segment.rows);
    pass = true;
  }
  if (pass) say_checked();
  answer_lengths(frame->header, program);
}

// Under mutex_.
void StagePort::answer_lengths(const FrameHeader& fed, StageProgram& program) {
  Frame answer = frame_to(FrameKind::kKvStored, fed.sender, view_.number, MicroBatchId{});
  for (size_t i = 0; i < fed.segments.size(); ++i) {
    const SequenceId sequence = fed.segments[i].sequence;
    if (i > 0 && fed.segments[i - 1].sequence == sequence) continue;
    const auto known = checked_.find(sequence);
    FrameSegment out;
    out.sequence = sequence;
    out.position = program.kv_length(sequence);
    if (known != checked_.end()) {
      out.disputed = known->second.disputed;
      // Rows that came as KV were not compared with anything: they do not count as checked.
      out.sample = fed.kind == FrameKind::kInputRows && !out.disputed;
      if (out.sample) out.position = std::min(out.position, known->second.position);
    }
    answer.header.segments.push_back(std::move(out));
  }
  send(view_.seats[options_.stage].data_address, std::move(answer));
}

// Under mutex_.
void StagePort::stored(const FrameHeader& header) {
  if (!feed_) return;
  std::vector<FeedLength> lengths;
  lengths.reserve(header.segments.size());
  for (const FrameSegment& segment : header.segments) {
    lengths.push_back({segment.sequence, segment.position});
    if (!inputs_) continue;
    if (segment.disputed) {
      disputed_.insert(segment.sequence);
      inputs_->forget(segment.sequence);
    } else if (segment.sample) {
      inputs_->checked(segment.sequence, segment.position);
    }
  }
  feed_->on_stored(lengths);
  tell_watermarks();
}

// Under mutex_: the next stage, whose input this journal keeps, and all behind it have standbys
// that hold so much.
void StagePort::trim_journal(const FrameHeader& header) {
  for (const FrameSegment& segment : header.segments) {
    watermarks_.on_downstream(segment.sequence, segment.position);
    if (journal_) journal_->trim(segment.sequence, segment.position);
  }
  tell_watermarks();
}

// Under mutex_. The batcher's log needs no trimming.
void StagePort::tell_watermarks() {
  if (first() || !feed_ || role_ != Role::kSeat) return;
  const std::vector<FeedLength> news =
      watermarks_.news(feed_->watermarks(), last(), kFrameSegmentsMax);
  if (news.empty()) return;
  const Seat& before = view_.seats[options_.stage - 1];
  Frame frame = frame_to(FrameKind::kWatermarks, before.incarnation, view_.number, MicroBatchId{});
  for (const FeedLength& one : news) {
    FrameSegment out;
    out.sequence = one.sequence;
    out.position = one.length;
    frame.header.segments.push_back(std::move(out));
  }
  send(before.data_address, std::move(frame));
}

// Frames get lost between processes only together with their connection; but what waits here for an
// answer that never comes would wait for ever.
void StagePort::tick(Instant now) {
  bool again = false;
  {
    const std::lock_guard lock(mutex_);
    if (now_ == Instant{}) feed_sent_ = said_checked_ = now;
    now_ = now;
    if (role_ == Role::kStandby && now - said_checked_ >= kCheckedAgainAfter) say_checked();
    if (feed_ && feed_->under_way() && now - feed_sent_ >= kFeedAnswerMax) feed_->on_lost();
    again = feed_ && !feed_->under_way();
  }
  const std::lock_guard gate(gate_);
  if (again && compute_) compute_->post([this](StageProgram& program) { feed_standby(program); });
}

}  // namespace troupe

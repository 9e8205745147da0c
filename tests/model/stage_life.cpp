#include "tests/model/stage_life.h"

#include <algorithm>
#include <cstring>

namespace troupe::model {
namespace {

constexpr size_t kRow = sizeof(uint64_t);
constexpr uint32_t kFeedRows = 1, kFeedFrameRows = 256;

}  // namespace

StageLife::StageLife(const Bounds& bounds, const Truth& truth, uint32_t of, Incarnation life)
    : stage(of),
      incarnation(life),
      fence(life),
      journal(size_t{bounds.journal_rows} * kRow, kRow),
      bounds_(&bounds),
      truth_(&truth) {}

bool StageLife::install(const ViewPtr& next) {
  const auto follower = std::find_if(next->standbys.begin(), next->standbys.end(),
                                     [&](const Standby& one) { return one.stage == stage; });
  const bool has_follower = follower != next->standbys.end();
  const bool takes_seat = next->seats[stage].incarnation == incarnation;
  if (!takes_seat && !(has_follower && follower->seat.incarnation == incarnation)) return false;
  std::vector<Incarnation> senders;
  if (takes_seat) {
    senders.push_back(next->batcher);
    if (stage > 0) senders.push_back(next->seats[stage - 1].incarnation);
    if (stage + 1 < next->seats.size()) senders.push_back(next->seats[stage + 1].incarnation);
    if (has_follower) senders.push_back(follower->seat.incarnation);
  } else {
    senders.push_back(next->seats[stage].incarnation);
  }
  const auto installed = fence.install(next->number, senders);
  if (installed == ViewFence::Installed::kOld) return false;
  if (installed == ViewFence::Installed::kRepeat) return true;
  view = next;
  seated = takes_seat;
  standby.reset();
  if (takes_seat && has_follower) standby = follower->seat.incarnation;
  sent.clear();
  watermarks.clear();
  if (standby.value_or(Incarnation{}) != fed) {
    fed = standby.value_or(Incarnation{});
    feed.reset();
    if (standby) feed.emplace(kFeedRows, kFeedFrameRows);
  } else if (feed) {
    feed->on_lost();
  }
  return true;
}

StageHoldings StageLife::held() const {
  if (!claimed.empty()) return claimed;
  StageHoldings all;
  for (const auto& [sequence, rows] : kv) {
    const Journal::Range kept = journal.range(sequence);
    all[sequence] = {static_cast<uint32_t>(rows.size()), kept.first, kept.end};
  }
  return all;
}

bool StageLife::would_take(const Frame& frame) const {
  ViewFence copy = fence;
  const ViewNumber number = bounds_->plant == Plant::kNoViewCheck ? copy.view() : frame.view;
  return usable(copy.check(number, frame.sender, frame.receiver, frame.edge_sequence));
}

bool StageLife::take(const Frame& frame, Frames& out) {
  if (!would_take(frame)) return false;
  const ViewNumber number = bounds_->plant == Plant::kNoViewCheck ? fence.view() : frame.view;
  fence.check(number, frame.sender, frame.receiver, frame.edge_sequence);
  switch (frame.kind) {
    case FrameKind::kTokens:
    case FrameKind::kActivations:
      compute(frame, out);
      break;
    case FrameKind::kReplay:
      replay(frame, out);
      break;
    case FrameKind::kKvRows: {
      store(frame);
      Frame answer = frame_to(FrameKind::kKvStored, frame.sender, frame);
      for (const FrameSegment& segment : frame.segments)
        answer.segments.push_back({.sequence = segment.sequence,
                                   .position = static_cast<uint32_t>(kv[segment.sequence].size()),
                                   .values = {}});
      out.push_back(std::move(answer));
      break;
    }
    case FrameKind::kKvStored: {
      std::vector<FeedLength> lengths;
      for (const FrameSegment& segment : frame.segments)
        lengths.push_back({segment.sequence, segment.position});
      if (feed) feed->on_stored(lengths);
      tell_watermarks(out);
      feed_standby(out);
      break;
    }
    case FrameKind::kWatermarks:
      trim_journal(frame, out);
      break;
    default:
      throw Violation("a stage got a frame that only a batcher may get");
  }
  return true;
}

void StageLife::run_cut_short(const Frame& frame) {
  Frame output;
  if (frame.kind == FrameKind::kKvRows)
    store(frame);
  else
    run(frame, output);
}

// False if there is a gap before the input; then nothing is changed.
bool StageLife::run(const Frame& frame, Frame& output) {
  for (const FrameSegment& segment : frame.segments) {
    const auto known = kv.find(segment.sequence);
    if (segment.position > (known == kv.end() ? 0 : known->second.size())) return false;
  }
  for (const FrameSegment& segment : frame.segments) {
    std::vector<uint64_t>& rows = kv[segment.sequence];
    FrameSegment out = segment;
    for (uint32_t r = 0; r < segment.rows; ++r) {
      const uint32_t position = segment.position + r;
      const uint64_t row =
          next_row(stage, position == 0 ? 0 : rows[position - 1], segment.values[r]);
      write(segment.sequence, position, row);
      out.values[r] = row;
    }
    output.segments.push_back(std::move(out));
  }
  for (const SequenceId sequence : frame.released) kv.erase(sequence);
  return true;
}

// I1, I5: a row is what it is in an undisturbed run, and executing it again changes nothing.
void StageLife::write(SequenceId sequence, uint32_t position, uint64_t row) {
  require(truth_->is_row(sequence, stage, position, row),
          "I1: a stage computed or stored a row that an undisturbed run does not have");
  std::vector<uint64_t>& rows = kv[sequence];
  require(position <= rows.size(), "I5: a row behind a gap was written");
  if (position == rows.size()) rows.push_back(row);
  require(rows[position] == row, "I5: a row executed again is another one");
}

void StageLife::compute(const Frame& frame, Frames& out) {
  Frame output;
  if (!run(frame, output)) return refuse(frame, out);
  keep_output(frame, output);
  if (!last() && stage != frame.exit_stage) {
    send_next(frame, std::move(output.segments), out);
  } else {
    Frame sampled = frame_to(FrameKind::kSampled, view->batcher, frame);
    for (const FrameSegment& segment : output.segments)
      if (last() && segment.sample)
        sampled.segments.push_back({.sequence = segment.sequence,
                                    .position = segment.position + segment.rows,
                                    .rows = 1,
                                    .values = {token_of(segment.values.back())}});
    out.push_back(std::move(sampled));
  }
  feed_standby(out);
}

void StageLife::keep_output(const Frame& input, const Frame& output) {
  if (!last() && bounds_->journal_rows > 0)
    for (const FrameSegment& segment : output.segments)
      journal.append(segment.sequence, segment.position, std::as_bytes(std::span(segment.values)));
  for (const SequenceId sequence : input.released) {
    watermarks.forget(sequence);
    journal.forget(sequence);
  }
}

void StageLife::replay(const Frame& frame, Frames& out) {
  std::vector<FrameSegment> segments = frame.segments;
  for (FrameSegment& segment : segments) {
    segment.values.resize(segment.rows);
    if (!journal.read(segment.sequence, segment.position, segment.rows,
                      std::as_writable_bytes(std::span(segment.values))))
      return refuse(frame, out);
    if (bounds_->plant == Plant::kJournalFreedAtSend) journal.forget(segment.sequence);
  }
  send_next(frame, std::move(segments), out);
}

void StageLife::send_next(const Frame& input, std::vector<FrameSegment> segments, Frames& out) {
  Frame frame = frame_to(FrameKind::kActivations, view->seats[stage + 1].incarnation, input);
  frame.segments = std::move(segments);
  frame.released = input.released;
  frame.exit_stage = input.exit_stage;
  out.push_back(std::move(frame));
}

void StageLife::refuse(const Frame& input, Frames& out) {
  out.push_back(frame_to(FrameKind::kRefused, view->batcher, input));
}

Frame StageLife::frame_to(FrameKind kind, Incarnation receiver, const Frame& input) {
  Frame frame;
  frame.kind = kind;
  frame.view = view->number;
  frame.sender = incarnation;
  frame.receiver = receiver;
  frame.edge_sequence = ++sent[receiver];
  frame.micro_batch = input.micro_batch;
  return frame;
}

void StageLife::feed_standby(Frames& out) {
  if (!feed || !standby) return;
  std::vector<FeedLength> lengths;
  for (const auto& [sequence, rows] : kv)
    lengths.push_back({sequence, static_cast<uint32_t>(rows.size())});
  const std::vector<FeedRows> wanted = feed->next(lengths);
  if (wanted.empty()) return;
  Frame frame = frame_to(FrameKind::kKvRows, *standby, Frame{});
  std::vector<FeedLength> said;
  for (const FeedRows& rows : wanted) {
    const auto first = kv[rows.sequence].begin() + rows.position;
    frame.segments.push_back({.sequence = rows.sequence,
                              .position = rows.position,
                              .rows = rows.rows,
                              .values = {first, first + rows.rows}});
    said.push_back({rows.sequence, rows.position + rows.rows});
  }
  out.push_back(std::move(frame));
  if (bounds_->plant == Plant::kWatermarkBeforeApply) feed->on_stored(said);
}

void StageLife::feed_again(Frames& out) {
  feed->on_lost();
  feed_standby(out);
}

void StageLife::trim_journal(const Frame& frame, Frames& out) {
  for (const FrameSegment& segment : frame.segments) {
    watermarks.on_downstream(segment.sequence, segment.position);
    journal.trim(segment.sequence, segment.position);
  }
  tell_watermarks(out);
}

void StageLife::tell_watermarks(Frames& out) {
  if (stage == 0 || !feed || !seated) return;
  const auto news = watermarks.news(feed->watermarks(), last(), kFeedFrameRows);
  if (news.empty()) return;
  Frame frame = frame_to(FrameKind::kWatermarks, view->seats[stage - 1].incarnation, Frame{});
  for (const FeedLength& one : news)
    frame.segments.push_back({.sequence = one.sequence, .position = one.length, .values = {}});
  out.push_back(std::move(frame));
}

// As standby. Rows behind a gap are not taken; the answer's lengths show it.
void StageLife::store(const Frame& frame) {
  for (const FrameSegment& segment : frame.segments) {
    if (segment.position > kv[segment.sequence].size()) return;
  }
  for (const FrameSegment& segment : frame.segments)
    for (uint32_t r = 0; r < segment.rows; ++r)
      write(segment.sequence, segment.position + r, segment.values[r]);
}

}  // namespace troupe::model

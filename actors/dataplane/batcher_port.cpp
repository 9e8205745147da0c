#include "actors/dataplane/batcher_port.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace troupe {
namespace {

// [stage]; empty if not every stage has said what it holds.
std::vector<StageHoldings> holdings_of(const View& view, const std::vector<StageHeld>& all) {
  std::vector<StageHoldings> holdings(view.seats.size());
  size_t known = 0;
  for (const StageHeld& held : all) {
    if (held.stage >= holdings.size()) continue;
    ++known;
    for (const SequenceHeld& one : held.sequences)
      holdings[held.stage].emplace(one.sequence,
                                   HeldRange{one.length, one.journal_first, one.journal_end});
  }
  return known == holdings.size() ? holdings : std::vector<StageHoldings>{};
}

// [stage]: who checks it; empty if nobody checks any.
std::vector<Incarnation> checkers_of(const View& view) {
  std::vector<Incarnation> checkers;
  for (const Standby& standby : view.standbys) {
    if (standby.policy != StandbyPolicy::kInput || standby.stage >= view.seats.size()) continue;
    checkers.resize(view.seats.size());
    checkers[standby.stage] = standby.seat.incarnation;
  }
  return checkers;
}

}  // namespace

BatcherPort::BatcherPort(BatcherPortOptions options)
    : options_(std::move(options)), batching_(options_.limits), fence_(options_.incarnation) {}

Result<void> BatcherPort::submit(BatchRequest request) {
  const std::lock_guard lock(mutex_);
  TROUPE_TRY_VOID(batching_.add(std::move(request)));
  plan();
  return {};
}

void BatcherPort::cancel(const RequestId& id) {
  const std::lock_guard lock(mutex_);
  if (auto event = batching_.cancel(id)) report({std::move(*event)});
  plan();
}

void BatcherPort::start(const View& next, const std::vector<StageHeld>& held) {
  const std::lock_guard lock(mutex_);
  // Refusals and the ends of replays may come from any stage.
  std::vector<Incarnation> senders;
  for (const Seat& seat : next.seats) senders.push_back(seat.incarnation);
  const std::vector<Incarnation> checkers = checkers_of(next);
  for (const Incarnation checker : checkers)
    if (checker) senders.push_back(checker);
  if (fence_.install(next.number, senders) != ViewFence::Installed::kInstalled) return;
  view_ = next;
  sent_.clear();
  serving_ = true;
  auto events = batching_.start_view(holdings_of(next, held), checkers);
  const BatchingFigures figures = batching_.figures();
  log_info("batcher", "view {} serves; {} requests go on, {} wait", view_.number.value,
           figures.running, figures.queued);
  plan();
  report(std::move(events));
}

void BatcherPort::stop(const std::string& why, std::optional<uint32_t> crashed) {
  const std::lock_guard lock(mutex_);
  if (serving_) log_warning("batcher", "paused: {}", why);
  serving_ = false;
  if (crashed) report(batching_.on_loss(*crashed, why));
  batching_.stop_view();
}

void BatcherPort::tick() {
  const std::lock_guard lock(mutex_);
  if (serving_)
    for (const PlannedBatch& batch : batching_.overdue(options_.now())) {
      log_warning("batcher", "micro-batch {} is overdue: sent again", batch.id.value);
      send(batch);
    }
  plan();
}

BatchingFigures BatcherPort::figures() const {
  const std::lock_guard lock(mutex_);
  return batching_.figures();
}

void BatcherPort::on_frame(FramePtr frame) {
  const std::lock_guard lock(mutex_);
  take(frame->header);
}

void BatcherPort::take(const FrameHeader& header) {
  if (!usable(fence_.check(header.view, header.sender, header.receiver, header.edge_sequence)) ||
      !serving_)
    return;
  if (header.kind == FrameKind::kRefused) {
    log_warning("batcher", "stage {} refused micro-batch {}: {}", header.refusing_stage,
                header.micro_batch.value, header.refusal);
    report(batching_.on_refused(
        header.micro_batch, fmt::format("stage {}: {}", header.refusing_stage, header.refusal)));
  } else if (header.kind == FrameKind::kSampled) {
    std::vector<SampledRow> rows;
    rows.reserve(header.segments.size());
    for (const FrameSegment& segment : header.segments)
      if (segment.tokens.size() == 1)
        rows.push_back(
            {segment.sequence, segment.position, segment.tokens.front(), segment.logits_digest});
    // The next micro-batch first: the pipeline waits for it, the listener does not.
    auto events = batching_.on_sampled(header.micro_batch, rows);
    plan();
    return report(std::move(events));
  } else if (header.kind == FrameKind::kChecked) {
    take_checked(header);
  }
  plan();
}

void BatcherPort::take_checked(const FrameHeader& header) {
  const auto by = std::find_if(
      view_.standbys.begin(), view_.standbys.end(),
      [&](const Standby& standby) { return standby.seat.incarnation == header.sender; });
  if (by == view_.standbys.end()) return;  // a seat has nothing to say of this kind
  std::vector<CheckedRows> rows;
  rows.reserve(header.segments.size());
  for (const FrameSegment& segment : header.segments)
    rows.push_back({segment.sequence, segment.position, segment.outcomes, segment.disputed,
                    segment.seat_outcome, segment.standby_outcome});
  report(batching_.on_checked({by->stage, view_.seats[by->stage].incarnation, by->seat.incarnation},
                              rows));
}

void BatcherPort::plan() {
  if (!serving_) return;
  while (auto batch = batching_.next(options_.now())) send(*batch);
}

void BatcherPort::send(const PlannedBatch& batch) {
  auto frame = std::make_shared<Frame>();
  FrameHeader& header = frame->header;
  // What enters at a later stage comes from the journal of the stage before it.
  const bool replays = batch.entry > 0;
  const Seat& to = view_.seats[replays ? batch.entry - 1 : 0];
  header.kind = replays ? FrameKind::kReplay : FrameKind::kTokens;
  header.view = view_.number;
  header.sender = options_.incarnation;
  header.receiver = to.incarnation;
  header.edge_sequence = ++sent_[to.incarnation];
  header.micro_batch = batch.id;
  header.exit_stage = batch.exit;
  header.released = batch.released;
  header.segments.reserve(batch.segments.size());
  for (const PlannedSegment& planned : batch.segments) {
    FrameSegment segment;
    segment.sequence = planned.sequence;
    segment.position = planned.position;
    segment.rows = static_cast<uint32_t>(planned.tokens.size());
    segment.blocks = planned.blocks;
    if (!replays) segment.tokens = planned.tokens;
    segment.sample = planned.sample;
    segment.sampling = planned.sampling;
    header.segments.push_back(std::move(segment));
  }
  header.sent_unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  options_.router->send(to.data_address, std::move(frame));
}

void BatcherPort::report(std::vector<BatchEvent> events) {
  if (!events.empty()) options_.listener(std::move(events));
  auto wrong = batching_.take_wrong();
  if (!wrong.empty() && options_.accuse) options_.accuse(std::move(wrong));
}

}  // namespace troupe

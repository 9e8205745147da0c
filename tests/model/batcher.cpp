#include "tests/model/batcher.h"

#include <string>

#include "base/check.h"

namespace troupe::model {
namespace {

BatchingLimits limits_of(const Bounds& bounds) {
  BatchingLimits limits;
  limits.stages = bounds.stages;
  limits.in_flight_max = bounds.stages + 1;
  limits.kv_blocks = bounds.requests * (1 + BlockPool::blocks_for(bounds.prompt + bounds.tokens));
  return limits;
}

}  // namespace

Batcher::Batcher(const Bounds& bounds, const Truth& truth, Incarnation life)
    : incarnation(life),
      batching(limits_of(bounds)),
      fence(life),
      shown(bounds.requests),
      ended(bounds.requests),
      bounds_(&bounds),
      truth_(&truth) {
  for (uint32_t request = 0; request < bounds.requests; ++request) {
    const auto added = batching.add({.id = std::to_string(request),
                                     .prompt = truth.prompt(request),
                                     .generated = {},
                                     .max_tokens = bounds.tokens,
                                     .sampling = {},
                                     .stop_tokens = {}});
    TROUPE_CHECK(added.ok(), "the limits hold all requests");
  }
}

void Batcher::start(const StartView& order, Instant now, Frames& out) {
  std::vector<Incarnation> senders;
  for (const Seat& seat : order.view->seats) senders.push_back(seat.incarnation);
  if (fence.install(order.view->number, senders) != ViewFence::Installed::kInstalled) return;
  view = order.view;
  sent.clear();
  serving = true;
  // Nobody holds anything unless every stage has said what it holds.
  std::vector<StageHoldings> by_stage;
  if (order.held.size() == view->seats.size())
    for (const auto& [stage, holdings] : order.held) by_stage.push_back(holdings);
  const std::vector<BatchEvent> events = batching.start_view(by_stage);
  plan(now, out);
  show(events);
}

void Batcher::stop(const StopView& order) {
  serving = false;
  if (order.crashed) show(batching.on_loss(*order.crashed, "it died"));
  batching.stop_view();
}

bool Batcher::would_take(const Frame& frame) const {
  ViewFence copy = fence;
  return usable(copy.check(frame.view, frame.sender, frame.receiver, frame.edge_sequence)) &&
         serving;
}

bool Batcher::take(const Frame& frame, Instant now, Frames& out) {
  if (!usable(fence.check(frame.view, frame.sender, frame.receiver, frame.edge_sequence)) ||
      !serving)
    return false;
  require(frame.kind == FrameKind::kRefused || frame.kind == FrameKind::kSampled,
          "a batcher got a frame that only a stage may get");
  if (frame.kind == FrameKind::kRefused) {
    show(batching.on_refused(frame.micro_batch, "refused"));
  } else {
    std::vector<SampledRow> rows;
    for (const FrameSegment& segment : frame.segments)
      rows.push_back({segment.sequence, segment.position,
                      static_cast<uint32_t>(segment.values.front()), segment.values.front()});
    show(batching.on_sampled(frame.micro_batch, rows));
  }
  plan(now, out);
  return true;
}

void Batcher::tick(Instant now, Frames& out) {
  if (!serving) return;
  for (const PlannedBatch& batch : batching.overdue(now)) send(batch, out);
  plan(now, out);
}

void Batcher::plan(Instant now, Frames& out) {
  while (const auto batch = batching.next(now)) send(*batch, out);
}

void Batcher::send(const PlannedBatch& batch, Frames& out) {
  const bool replays = batch.entry > 0;
  Frame frame;
  frame.kind = replays ? FrameKind::kReplay : FrameKind::kTokens;
  frame.view = view->number;
  frame.sender = incarnation;
  frame.receiver = view->seats[replays ? batch.entry - 1 : 0].incarnation;
  frame.edge_sequence = ++sent[frame.receiver];
  frame.micro_batch = batch.id;
  frame.exit_stage = batch.exit;
  frame.released = batch.released;
  for (const PlannedSegment& planned : batch.segments)
    frame.segments.push_back({.sequence = planned.sequence,
                              .position = planned.position,
                              .rows = static_cast<uint32_t>(planned.tokens.size()),
                              .sample = planned.sample,
                              .values = {planned.tokens.begin(),
                                         replays ? planned.tokens.begin() : planned.tokens.end()}});
  out.push_back(std::move(frame));
}

// I3: what a client sees grows by one token at a time, and each is the one of an undisturbed run.
void Batcher::show(const std::vector<BatchEvent>& events) {
  for (const BatchEvent& event : events) {
    const auto request = static_cast<uint32_t>(std::stoul(event.id));
    if (event.finish == FinishReason::kFailed)
      throw Violation("I3: request " + event.id + " failed: " + event.failure);
    require(!ended[request], "I3: something came behind a request's end");
    if (event.token) {
      require(event.index == shown[request], "I3: a token was lost or doubled");
      require(*event.token == truth_->token(request, event.index), "I3: a wrong token was shown");
      ++shown[request];
    }
    if (!event.finish) continue;
    ended[request] = true;
    require(shown[request] == bounds_->tokens, "I3: a request ended too early");
  }
}

bool Batcher::finished() const {
  for (const bool one : ended)
    if (!one) return false;
  return true;
}

}  // namespace troupe::model

#include "actors/batcher.h"

#include <chrono>

#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {

void BatcherState::start(const View& next) {
  const Incarnation sender = next.seats.back().incarnation;
  // Refusals may come from any stage.
  std::vector<Incarnation> senders{sender};
  for (const Seat& seat : next.seats)
    if (seat.incarnation != sender) senders.push_back(seat.incarnation);
  if (fence->install(next.number, senders) != ViewFence::Installed::kInstalled) return;
  view = next;
  next_edge_sequence = 1;
  serving = true;
  batching->start_view();
  const BatchingFigures figures = batching->figures();
  log_info("batcher", "view {} serves; {} requests go on, {} wait", view.number.value,
           figures.running, figures.queued);
  plan();
}

void BatcherState::arrived(const FrameHeader& header) {
  if (!usable(fence->check(header.view, header.sender, header.receiver, header.edge_sequence)) ||
      !serving)
    return;
  if (header.kind == FrameKind::kRefused) {
    log_warning("batcher", "stage {} refused micro-batch {}: {}", header.refusing_stage,
                header.micro_batch.value, header.refusal);
    report(batching->on_refused(
        header.micro_batch, fmt::format("stage {}: {}", header.refusing_stage, header.refusal)));
  } else if (header.kind == FrameKind::kSampled) {
    std::vector<SampledRow> rows;
    rows.reserve(header.segments.size());
    for (const FrameSegment& segment : header.segments)
      if (segment.tokens.size() == 1)
        rows.push_back(
            {segment.sequence, segment.position, segment.tokens.front(), segment.logits_digest});
    report(batching->on_sampled(header.micro_batch, rows));
  }
  plan();
}

void BatcherState::plan() {
  if (!serving) return;
  while (auto batch = batching->next(self->clock().now())) send(*batch);
}

void BatcherState::send(const PlannedBatch& batch) {
  auto frame = std::make_shared<Frame>();
  FrameHeader& header = frame->header;
  header.kind = FrameKind::kTokens;
  header.view = view.number;
  header.sender = options.incarnation;
  header.receiver = view.seats.front().incarnation;
  header.edge_sequence = next_edge_sequence++;
  header.micro_batch = batch.id;
  header.released = batch.released;
  header.segments.reserve(batch.segments.size());
  for (const PlannedSegment& planned : batch.segments) {
    FrameSegment segment;
    segment.sequence = planned.sequence;
    segment.position = planned.position;
    segment.rows = static_cast<uint32_t>(planned.tokens.size());
    segment.blocks = planned.blocks;
    segment.tokens = planned.tokens;
    segment.sample = planned.sample;
    segment.sampling = planned.sampling;
    header.segments.push_back(std::move(segment));
  }
  header.sent_unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  self->send(options.link, SendFrame{view.seats.front().data_address, frame});
}

void BatcherState::report(std::vector<BatchEvent> events) {
  if (!events.empty()) self->send(options.listener, BatchEvents{std::move(events)});
}

BatcherActor::behavior_type batcher_actor(BatcherActor::stateful_pointer<BatcherState> self,
                                          BatcherOptions options) {
  BatcherState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  state.batching = std::make_unique<Batching>(state.options.limits);
  state.fence = std::make_unique<ViewFence>(state.options.incarnation);
  self->send(state.options.link,
             BindReceiver{state.options.incarnation,
                          caf::actor_cast<FrameReceiver>(caf::strong_actor_ptr{self->ctrl()})});
  self->delayed_send(self, state.options.tick, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const Submit& order) {
        auto added = state.batching->add(order.request);
        if (!added.ok()) return SubmitOutcome{added.error()};
        state.plan();
        return SubmitOutcome{};
      },
      [&state](const CancelRequest& order) {
        if (auto event = state.batching->cancel(order.id)) state.report({std::move(*event)});
        state.plan();
      },
      [&state](const StartView& order) { state.start(order.view); },
      [&state](const StopView& order) {
        if (state.serving) log_warning("batcher", "paused: {}", order.why);
        state.serving = false;
        state.batching->stop_view();
      },
      [&state](const FrameArrived& arrived) { state.arrived(arrived.frame->header); },
      [&state](const Tick&) {
        if (state.serving)
          for (const PlannedBatch& batch : state.batching->overdue(state.self->clock().now())) {
            log_warning("batcher", "micro-batch {} is overdue: sent again", batch.id.value);
            state.send(batch);
          }
        state.plan();
        state.self->delayed_send(state.self, state.options.tick, Tick{});
      },
      [&state](const GetBatchingFigures&) { return state.batching->figures(); },
  };
}

}  // namespace troupe

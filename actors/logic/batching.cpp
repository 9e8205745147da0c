// What happens to a sequence: it arrives, gets tokens, is refused, ends. batching_plan.cpp decides
// what runs next.
#include "actors/logic/batching.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace troupe {

Batching::Batching(BatchingLimits limits) : limits_(limits), pool_(limits.kv_blocks) {
  TROUPE_CHECK(limits.stages > 0 && limits.in_flight_max > 0 && limits.rows_max > 0 &&
                   limits.prefill_chunk_max > 0 && limits.running_max > 0,
               "a limit of nothing would stop everything");
}

// How long the log may grow: what is wished for, at most to the end of the context.
Result<uint32_t> Batching::length_granted(const BatchRequest& request) const {
  const auto refuse = [](std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message)};
  };
  if (request.prompt.empty()) return refuse("prompt is empty, at least 1 token is needed");
  if (request.prompt.size() >= limits_.context_max)
    return refuse(fmt::format("prompt has {} tokens, the context holds {}", request.prompt.size(),
                              limits_.context_max));
  const auto prompt = static_cast<uint32_t>(request.prompt.size());
  const uint32_t length = prompt + std::min(request.max_tokens, limits_.context_max - prompt);
  if (request.generated.size() >= length - prompt)
    return refuse(fmt::format("{} tokens are generated already, asked for are at most {}",
                              request.generated.size(), length - prompt));
  const auto is_stop = [&](uint32_t token) {
    return std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
           request.stop_tokens.end();
  };
  if (std::any_of(request.generated.begin(), request.generated.end(), is_stop))
    return refuse("a stop token is generated already");
  // The last token is never fed, so it needs no room.
  const uint32_t blocks = BlockPool::blocks_for(length - 1);
  if (blocks > pool_.total())
    return refuse(fmt::format(
        "a prompt of {} tokens and {} to generate need {} KV blocks, there are {} in all", prompt,
        length - prompt, blocks, pool_.total()));
  return length;
}

Result<void> Batching::add(BatchRequest request) {
  TROUPE_TRY(const uint32_t length_max, length_granted(request));
  if (by_request_.contains(request.id))
    return Error{ErrorCode::kAlreadyExists,
                 fmt::format("request {} is queued or running already", request.id)};
  if (queue_.size() >= limits_.queue_max)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} requests wait already, the queue holds {}", queue_.size(),
                             limits_.queue_max)};
  const Order order = ++last_order_;
  by_request_[request.id] = order;
  queue_.insert(order);
  sequences_.emplace(order, Sequence{.request = std::move(request.id),
                                     .log = TokenLog(std::move(request.prompt), request.generated),
                                     .length_max = length_max,
                                     .sampling = request.sampling,
                                     .stop_tokens = std::move(request.stop_tokens),
                                     .id = {},
                                     .blocks = {},
                                     .gap = {},
                                     .done = {},
                                     .checks = {}});
  Sequence& added = sequences_.at(order);
  added.shown = added.log.generated_size();
  return {};
}

std::optional<BatchEvent> Batching::cancel(const RequestId& id) {
  const auto known = by_request_.find(id);
  if (known == by_request_.end()) return std::nullopt;
  const Order order = known->second;
  Sequence& sequence = sequences_.at(order);
  BatchEvent event = end(sequence, FinishReason::kCancelled);
  if (sequence.in_flight) {
    running_.erase(order);
    leaving_.insert(order);
  } else {
    forget(order);
  }
  return event;
}

std::vector<BatchEvent> Batching::start_view(std::span<const StageHoldings> held,
                                             std::vector<Incarnation> checkers) {
  has_view_ = true;
  in_flight_.clear();
  change_checkers(std::move(checkers));
  for (auto& [order, sequence] : sequences_) {
    sequence.in_flight = false;
    sequence.refusals = 0;  // these may be other lives of the stages
  }
  const std::set<Order> leaving = leaving_;
  for (const Order order : leaving) landed(order);
  std::set<SequenceId> running;
  for (const Order order : running_) {
    Sequence& sequence = sequences_.at(order);
    running.insert(sequence.id);
    resume(sequence, held);
  }
  // What was released with a micro-batch that is lost, or has no owner any more.
  std::set<SequenceId> forgotten;
  for (const StageHoldings& stage : held)
    for (const auto& [id, range] : stage)
      if (!running.contains(id)) forgotten.insert(id);
  released_.assign(forgotten.begin(), forgotten.end());
  std::vector<BatchEvent> events;
  const std::set<Order> all = running_;
  for (const Order order : all) {
    show(sequences_.at(order), events);
    landed(order);
  }
  return events;
}

void Batching::resume(Sequence& sequence, std::span<const StageHoldings> held) {
  sequence.gap.reset();
  if (held.empty()) {
    sequence.fed = 0;
    return;
  }
  std::vector<HeldRange> by_stage;
  for (const StageHoldings& stage : held) {
    const auto found = stage.find(sequence.id);
    by_stage.push_back(found == stage.end() ? HeldRange{} : found->second);
  }
  sequence.gap = find_gap(sequence.fed, by_stage);
}

void Batching::stop_view() {
  has_view_ = false;
}

std::vector<BatchEvent> Batching::on_loss(uint32_t stage, const std::string& why) {
  std::vector<BatchEvent> events;
  for (const auto& [id, in_flight] : in_flight_)
    for (const Order order : in_flight.members) {
      Sequence& sequence = sequences_.at(order);
      if (sequence.ended) continue;
      if (std::exchange(sequence.lost_stage, stage) != stage) sequence.losses = 0;
      if (++sequence.losses < kLossesMax) continue;
      events.push_back(
          end(sequence, FinishReason::kFailed,
              fmt::format("quarantined: stage {} was lost {} times in a row while it ran; the last "
                          "time: {}",
                          stage, sequence.losses, why)));
      running_.erase(order);
      leaving_.insert(order);  // forgotten with the next view
    }
  return events;
}

std::vector<BatchEvent> Batching::on_sampled(MicroBatchId id, std::span<const SampledRow> rows) {
  const auto known = in_flight_.find(id);
  if (known == in_flight_.end()) return {};
  const InFlight answered = std::move(known->second);
  in_flight_.erase(known);
  std::map<SequenceId, const SampledRow*> by_sequence;
  for (const SampledRow& row : rows) by_sequence.emplace(row.sequence, &row);
  std::vector<BatchEvent> events;
  for (size_t i = 0; i < answered.members.size(); ++i) {
    const PlannedSegment& segment = answered.batch.segments[i];
    const auto row = by_sequence.find(segment.sequence);
    take_answer(answered.members[i], segment, row == by_sequence.end() ? nullptr : row->second,
                events);
    landed(answered.members[i]);
  }
  return events;
}

void Batching::take_answer(Order order, const PlannedSegment& segment, const SampledRow* row,
                           std::vector<BatchEvent>& events) {
  Sequence& sequence = sequences_.at(order);
  sequence.in_flight = false;
  if (sequence.ended || sequence.in_doubt) return;
  const uint32_t done = segment.position + static_cast<uint32_t>(segment.tokens.size());
  if (sequence.gap) {
    sequence.gap->from = done;
    if (sequence.gap->rows() == 0) sequence.gap.reset();
    return;
  }
  sequence.fed = done;
  if (!segment.sample) return;
  if (row == nullptr) {
    take_refusal(sequence, "the last stage sent no token", events);
  } else {
    take_token(sequence, *row, events);
  }
}

void Batching::take_token(Sequence& sequence, const SampledRow& row,
                          std::vector<BatchEvent>& events) {
  const uint32_t expected = sequence.log.size();
  switch (sequence.log.append(row.position, row.token, row.logits_digest)) {
    case AppendOutcome::kAppended:
      break;
    case AppendOutcome::kDivergence:
      ++figures_.divergences;
      events.push_back(end(sequence, FinishReason::kFailed,
                           fmt::format("divergence at position {}: token {} (logits {}) was known, "
                                       "token {} (logits {}) came",
                                       row.position, sequence.log.token_at(row.position),
                                       to_hex(sequence.log.logits_digest_at(row.position)),
                                       row.token, to_hex(row.logits_digest))));
      return;
    case AppendOutcome::kRepeat:
    case AppendOutcome::kGap:
      take_refusal(sequence,
                   fmt::format("the last stage sent the token of position {}, expected was {}",
                               row.position, expected),
                   events);
      return;
  }
  sequence.refusals = sequence.losses = 0;
  ++figures_.tokens_generated;
  const auto& stops = sequence.stop_tokens;
  if (std::find(stops.begin(), stops.end(), row.token) != stops.end()) {
    sequence.done = FinishReason::kStop;
  } else if (sequence.log.size() == sequence.length_max) {
    sequence.done = FinishReason::kLength;
  }
  show(sequence, events);
}

std::vector<BatchEvent> Batching::on_refused(MicroBatchId id, const std::string& why) {
  const auto known = in_flight_.find(id);
  if (known == in_flight_.end()) return {};
  const InFlight refused = std::move(known->second);
  in_flight_.erase(known);
  // Stages behind the one that refused have not heard of these; forgetting twice does no harm.
  released_.insert(released_.begin(), refused.batch.released.begin(), refused.batch.released.end());
  std::vector<BatchEvent> events;
  for (const Order order : refused.members) {
    Sequence& sequence = sequences_.at(order);
    sequence.in_flight = false;
    if (!sequence.ended) take_refusal(sequence, why, events);
    landed(order);
  }
  return events;
}

void Batching::take_refusal(Sequence& sequence, const std::string& why,
                            std::vector<BatchEvent>& events) {
  sequence.fed = 0;
  sequence.gap.reset();
  // What is held of it may be what is wrong: from the second time on it starts under another id.
  sequence.preempted = ++sequence.refusals >= 2;
  if (sequence.refusals <= kRefusalsMax) return;
  events.push_back(end(sequence, FinishReason::kFailed,
                       fmt::format("refused {} times in a row: {}", sequence.refusals, why)));
}

void Batching::landed(Order order) {
  const Sequence& sequence = sequences_.at(order);
  if (sequence.ended) {
    forget(order);
  } else if (sequence.preempted) {
    requeue(order);
  }
}

// The request's last event. The sequence itself is forgotten when nothing of it is in flight.
BatchEvent Batching::end(Sequence& sequence, FinishReason reason, std::string failure) {
  sequence.ended = true;
  by_request_.erase(sequence.request);
  ++figures_.requests_done;
  note_wrong(disputes_.on_end(sequence.request));
  return {.id = sequence.request,
          .index = sequence.shown,
          .token = std::nullopt,
          .logits_digest = 0,
          .finish = reason,
          .failure = std::move(failure)};
}

// Its KV is given up: blocks come free, stages are told with the next micro-batch.
void Batching::stop_running(Order order) {
  Sequence& sequence = sequences_.at(order);
  TROUPE_CHECK(!sequence.in_flight, "blocks of a sequence in flight stay its own");
  running_.erase(order);
  leaving_.erase(order);
  if (sequence.id) released_.push_back(sequence.id);
  by_sequence_.erase(sequence.id);
  pool_.free(sequence.blocks);
  sequence.blocks.clear();
  sequence.id = {};
  sequence.fed = 0;
  sequence.gap.reset();
  sequence.preempted = sequence.in_doubt = false;
}

void Batching::requeue(Order order) {
  stop_running(order);
  queue_.insert(order);  // younger ones are behind it: it is at the front again, or behind older
                         // ones put back
}

void Batching::forget(Order order) {
  queue_.erase(order);
  stop_running(order);
  sequences_.erase(order);
}

std::optional<std::vector<uint32_t>> Batching::generated(const RequestId& id) const {
  const auto known = by_request_.find(id);
  if (known == by_request_.end()) return std::nullopt;
  const Sequence& sequence = sequences_.at(known->second);
  const auto tokens = sequence.log.generated().first(sequence.shown);
  return std::vector<uint32_t>(tokens.begin(), tokens.end());
}

std::vector<RequestId> Batching::requests() const {
  std::vector<RequestId> ids;
  for (const auto& [id, order] : by_request_) ids.push_back(id);
  return ids;
}

BatchingFigures Batching::figures() const {
  BatchingFigures figures = figures_;
  figures.queued = static_cast<uint32_t>(queue_.size());
  figures.running = static_cast<uint32_t>(running_.size() + leaving_.size());
  figures.in_flight = static_cast<uint32_t>(in_flight_.size());
  figures.kv_blocks_used = pool_.used();
  figures.kv_blocks = pool_.total();
  return figures;
}

}  // namespace troupe

// What runs next. One micro-batch is drafted at a time: decode rows first, because somebody is
// reading along; then prefill chunks in what is left of the row budget.
//
// K stages are kept busy by K micro-batches that share the work, so each takes only its share of
// what is ready: a micro-batch that took everything would leave all stages but one idle (with one
// stage the share is everything). Nor may decode rows be scattered over more than K: a sequence
// that is ready while K are out waits a moment for the next to come back and rides with it, because
// many thin micro-batches read the weights more often than few thick ones.
#include <algorithm>

#include "actors/logic/batching.h"
#include "base/check.h"

namespace troupe {

namespace {

size_t share(size_t ready, size_t takers) {
  return (ready + takers - 1) / takers;
}

}  // namespace

struct Batching::Draft {
  PlannedBatch batch;
  std::vector<Order> members;
  bool decodes = false;
  uint32_t rows_left = 0;
};

std::optional<PlannedBatch> Batching::next(Instant now) {
  if (!has_view_ || in_flight_.size() >= limits_.in_flight_max) return std::nullopt;
  Draft draft{.batch = {}, .members = {}, .decodes = false, .rows_left = limits_.rows_max};
  if (!plan_alone(draft) && !plan_replay(draft)) {
    // While a running sequence lacks a block, nobody else is let in to take it.
    if (plan_decode(draft)) start_queued();
    plan_prefill(draft);
  }
  if (draft.members.empty() && (released_.empty() || !in_flight_.empty())) return std::nullopt;

  // Only with what every stage hears of: a replay passes by some.
  const bool passes_all = draft.batch.entry == 0 && draft.batch.exit == kToTheEnd;
  const size_t released = passes_all ? std::min<size_t>(released_.size(), kReleasedMax) : 0;
  const auto released_end = released_.begin() + static_cast<ptrdiff_t>(released);
  draft.batch.released.assign(released_.begin(), released_end);
  released_.erase(released_.begin(), released_end);
  draft.batch.id = last_batch_ = MicroBatchId{last_batch_.value + 1};
  ++figures_.micro_batches;
  const auto [entry, is_new] = in_flight_.emplace(
      draft.batch.id,
      InFlight{std::move(draft.batch), std::move(draft.members), draft.decodes, now});
  TROUPE_CHECK(is_new, "micro-batch numbers only grow");
  return entry->second.batch;
}

// A sequence that was refused more than once, or that ran twice when a stage was lost, runs without
// company until it has shown that it can.
bool Batching::plan_alone(Draft& draft) {
  for (const Order order : running_) {
    const Sequence& sequence = sequences_.at(order);
    if (!sequence.is_suspect() || sequence.gap) continue;
    // Nothing else may be out meanwhile: it would be under suspicion, too, if a stage were lost.
    if (sequence.losses >= 2 && !in_flight_.empty()) return true;
    if (sequence.in_flight || sequence.unfed() == 0 || waits_for_checks(sequence)) continue;
    if (add_segment(draft, order, sequence.unfed())) return true;
    if (!running_.contains(order))
      break;  // it was put back for want of blocks, and the set has changed
  }
  return false;
}

// What stages lack comes first, because somebody waits for it: the shortest gap, and what else
// takes the same way.
bool Batching::plan_replay(Draft& draft) {
  std::vector<Order> waiting;
  for (const Order order : running_)
    if (sequences_.at(order).gap && !sequences_.at(order).in_flight) waiting.push_back(order);
  if (waiting.empty()) return false;
  std::stable_sort(waiting.begin(), waiting.end(), [&](Order a, Order b) {
    return sequences_.at(a).gap->rows() < sequences_.at(b).gap->rows();
  });
  const Gap way = *sequences_.at(waiting.front()).gap;
  draft.batch.entry = way.entry;
  draft.batch.exit = way.exit;
  for (const Order order : waiting) {
    Sequence& sequence = sequences_.at(order);
    const Gap& gap = *sequence.gap;
    if (draft.rows_left == 0) break;
    if (gap.entry != way.entry || gap.exit != way.exit) continue;
    const uint32_t taken = std::min({gap.rows(), draft.rows_left, limits_.prefill_chunk_max});
    put(draft, order, gap.from, taken, false);
    figures_.rows_replayed += taken;
  }
  return true;
}

// False if a sequence had to be left out for want of a KV block.
bool Batching::plan_decode(Draft& draft) {
  const auto out =
      static_cast<size_t>(std::count_if(in_flight_.begin(), in_flight_.end(),
                                        [](const auto& entry) { return entry.second.decodes; }));
  if (out >= lanes()) return true;
  const std::vector<Order> candidates = ready(true);
  const size_t group =
      std::min(share(running(true), lanes()), share(candidates.size(), lanes() - out));
  size_t taken = 0;
  for (const Order order : candidates) {
    if (taken == group || draft.rows_left == 0) break;
    if (!running_.contains(order)) continue;  // put back meanwhile, for an older one
    if (!add_segment(draft, order, 1)) return false;
    ++taken;
  }
  return true;
}

void Batching::plan_prefill(Draft& draft) {
  const std::vector<Order> candidates = ready(false);
  const size_t out = in_flight_.size();
  // Counting those under way, too: whoever arrives just behind the first shall not all go together.
  const size_t group = std::min(share(running(false), lanes()),
                                share(candidates.size(), lanes() > out ? lanes() - out : 1));
  size_t taken = 0;
  for (const Order order : candidates) {
    if (taken == group || draft.rows_left == 0) break;
    if (!running_.contains(order)) continue;
    if (!add_segment(draft, order, sequences_.at(order).unfed())) break;
    ++taken;
  }
}

// Running sequences that could be fed, oldest first: with one row to feed, or with more.
std::vector<Batching::Order> Batching::ready(bool decoding) const {
  std::vector<Order> orders;
  for (const Order order : running_) {
    const Sequence& sequence = sequences_.at(order);
    if (sequence.may_run() && sequence.decodes() == decoding && !waits_for_checks(sequence))
      orders.push_back(order);
  }
  return orders;
}

// Running sequences, also those in flight, with one row to feed or with more.
size_t Batching::running(bool decoding) const {
  return static_cast<size_t>(std::ranges::count_if(
      running_, [&](Order order) { return sequences_.at(order).decodes() == decoding; }));
}

// Micro-batches that share the work: one for each stage, if so many may be out.
size_t Batching::lanes() const {
  return std::min(limits_.stages, limits_.in_flight_max);
}

// Stops at the first that finds no room, so that a large request is never overtaken for ever by
// small ones. One block beyond the log must be free, or it would be put back at its first step; but
// nobody needs more than its whole length.
void Batching::start_queued() {
  while (!queue_.empty() && running_.size() + leaving_.size() < limits_.running_max) {
    const Order order = *queue_.begin();
    Sequence& sequence = sequences_.at(order);
    const uint32_t now = BlockPool::blocks_for(sequence.log.size());
    const uint32_t finally = BlockPool::blocks_for(sequence.length_max - 1);
    if (pool_.available() < std::min(now + 1, finally)) return;
    sequence.blocks = pool_.allocate(now).value();
    sequence.id = last_sequence_ = SequenceId{last_sequence_.value + 1};
    by_sequence_[sequence.id] = order;
    expect_checks(sequence);
    queue_.erase(queue_.begin());
    running_.insert(order);
  }
}

// Up to `rows` rows, as far as the budgets allow; false if there is no KV block for them.
bool Batching::add_segment(Draft& draft, Order order, uint32_t rows) {
  Sequence& sequence = sequences_.at(order);
  const uint32_t taken = std::min({rows, draft.rows_left, limits_.prefill_chunk_max});
  const uint32_t end = sequence.fed + taken;
  if (!ensure_blocks(order, end)) return false;
  put(draft, order, sequence.fed, taken, end == sequence.log.size());
  draft.decodes = draft.decodes || sequence.decodes();
  const uint32_t prompt = sequence.log.prompt_size();
  figures_.rows_replayed += std::min(end, std::max(sequence.fed_most, sequence.fed)) - sequence.fed;
  if (end > sequence.fed_most) {
    figures_.prompt_tokens += std::min(end, prompt) - std::min(sequence.fed_most, prompt);
    sequence.fed_most = end;
  }
  return true;
}

// These rows of the sequence's log, whose blocks it has.
void Batching::put(Draft& draft, Order order, uint32_t position, uint32_t rows, bool sample) {
  Sequence& sequence = sequences_.at(order);
  const auto tokens = sequence.log.tokens().subspan(position, rows);
  const auto blocks = std::span(sequence.blocks).first(BlockPool::blocks_for(position + rows));
  draft.batch.segments.push_back({.sequence = sequence.id,
                                  .position = position,
                                  .tokens = {tokens.begin(), tokens.end()},
                                  .blocks = {blocks.begin(), blocks.end()},
                                  .sample = sample,
                                  .sampling = sequence.sampling});
  draft.members.push_back(order);
  draft.rows_left -= rows;
  sequence.in_flight = true;
}

// Blocks for so many positions. When the pool is empty the youngest gives way, be it this one
// itself: its log is kept and fed again later. One that is in flight gives way when it lands, and
// until then this sequence waits.
bool Batching::ensure_blocks(Order order, uint32_t positions) {
  Sequence& sequence = sequences_.at(order);
  const uint32_t wanted = BlockPool::blocks_for(positions);
  const auto held = static_cast<uint32_t>(sequence.blocks.size());
  if (wanted <= held) return true;
  while (pool_.available() < wanted - held) {
    if (!leaving_.empty()) return false;
    const Order youngest = *running_.rbegin();
    Sequence& victim = sequences_.at(youngest);
    if (victim.in_flight) {
      victim.preempted = true;
      running_.erase(youngest);
      leaving_.insert(youngest);
      return false;
    }
    requeue(youngest);
    if (youngest == order) return false;
  }
  const std::vector<uint32_t> more = pool_.allocate(wanted - held).value();
  sequence.blocks.insert(sequence.blocks.end(), more.begin(), more.end());
  return true;
}

std::vector<PlannedBatch> Batching::overdue(Instant now) {
  std::vector<PlannedBatch> batches;
  if (!has_view_) return batches;
  for (auto& [id, in_flight] : in_flight_) {
    if (now - in_flight.sent < limits_.reissue_after) continue;
    in_flight.sent = now;
    ++figures_.reissued;
    batches.push_back(in_flight.batch);
  }
  return batches;
}

}  // namespace troupe

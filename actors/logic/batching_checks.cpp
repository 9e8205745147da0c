// What may be shown. Without standbys that check, everything at once; with them, a token when every
// one of them has executed all rows it depends on and the same came out.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "actors/logic/batching.h"

namespace troupe {

// The token at position p is drawn from the row at p - 1.
uint32_t Batching::Sequence::checked() const {
  uint32_t least = std::numeric_limits<uint32_t>::max();
  for (const Check& check : checks)
    if (check.holds_back) least = std::min(least, check.until);
  return least;
}

// It gets to run: whoever checks now will see every row of it.
void Batching::expect_checks(Sequence& sequence) const {
  sequence.checks.resize(checkers_.size());
  for (size_t stage = 0; stage < checkers_.size(); ++stage) {
    sequence.checks[stage].until = 0;
    sequence.checks[stage].holds_back = bool{checkers_[stage]};
  }
}

void Batching::change_checkers(std::vector<Incarnation> checkers) {
  for (auto& [order, sequence] : sequences_) {
    sequence.checks.resize(checkers.size());
    for (size_t stage = 0; stage < checkers.size(); ++stage) {
      if (stage < checkers_.size() && checkers_[stage] == checkers[stage]) continue;
      sequence.checks[stage].until = 0;
      sequence.checks[stage].holds_back = false;
    }
  }
  checkers_ = std::move(checkers);
}

// Every token that may be shown and was not yet; with the last one the request ends.
void Batching::show(Sequence& sequence, std::vector<BatchEvent>& events) {
  if (sequence.ended || sequence.in_doubt) return;
  const uint32_t prompt = sequence.log.prompt_size();
  while (sequence.shown < sequence.log.generated_size()) {
    const uint32_t position = prompt + sequence.shown;
    if (position > sequence.checked()) return;
    const uint32_t token = sequence.log.token_at(position);
    BatchEvent event{.id = sequence.request,
                     .index = sequence.shown++,
                     .token = token,
                     .logits_digest = sequence.log.logits_digest_at(position),
                     .finish = std::nullopt,
                     .failure = {}};
    if (sequence.done && sequence.shown == sequence.log.generated_size())
      event.finish = end(sequence, *sequence.done).finish;
    events.push_back(std::move(event));
  }
}

std::vector<BatchEvent> Batching::on_checked(const CheckedStage& by,
                                             std::span<const CheckedRows> rows) {
  std::vector<BatchEvent> events;
  if (by.stage >= checkers_.size() || checkers_[by.stage] != by.standby) return events;
  for (const CheckedRows& one : rows) {
    const auto known = by_sequence_.find(one.sequence);
    if (known == by_sequence_.end()) continue;
    const Order order = known->second;
    const Sequence& sequence = sequences_.at(order);
    if (sequence.ended || sequence.in_doubt) continue;
    take_check(by, one, order, events);
    if (!sequence.ended && one.disputed) take_dispute(by, one, order, events);
    if (sequence.ended && !sequence.in_flight) forget(order);
  }
  return events;
}

void Batching::take_check(const CheckedStage& by, const CheckedRows& rows, Order order,
                          std::vector<BatchEvent>& events) {
  Sequence& sequence = sequences_.at(order);
  Check& check = sequence.checks[by.stage];
  if (rows.end() > check.until) figures_.rows_checked += rows.end() - check.until;
  check.until = std::max(check.until, rows.end());
  check.agree(rows.position, rows.end());
  // From where it has caught up it sees everything before anybody else does.
  if (check.until >= sequence.fed) check.holds_back = true;
  if (!disputes_.empty())
    for (size_t i = 0; i < rows.outcomes.size(); ++i)
      note_wrong(disputes_.on_agreed(by.stage, sequence.request,
                                     rows.position + static_cast<uint32_t>(i), rows.outcomes[i]));
  show(sequence, events);
}

void Batching::take_dispute(const CheckedStage& by, const CheckedRows& rows, Order order,
                            std::vector<BatchEvent>& events) {
  Sequence& sequence = sequences_.at(order);
  ++figures_.disputes;
  const uint32_t position = rows.end();
  note_wrong(disputes_.on_dispute({.stage = by.stage,
                                   .request = sequence.request,
                                   .position = position,
                                   .seat = by.seat,
                                   .standby = by.standby,
                                   .seat_outcome = rows.seat_outcome,
                                   .standby_outcome = rows.standby_outcome}));
  const uint32_t shown = sequence.log.prompt_size() + sequence.shown;
  const bool was_shown =
      sequence.shown > 0 && position + 1 < shown && !sequence.checks[by.stage].agreed(position);
  if (was_shown || ++sequence.disputes >= kDisputesMax) {
    events.push_back(
        end(sequence, FinishReason::kFailed,
            fmt::format("stage {} and its standby disagree about position {} ({} and {}){}",
                        by.stage, position, to_hex(rows.seat_outcome), to_hex(rows.standby_outcome),
                        was_shown ? ", behind which tokens were shown before it had a standby"
                                  : fmt::format(", the {}th time", sequence.disputes))));
    if (sequence.in_flight) {
      running_.erase(order);
      leaving_.insert(order);
    }
    return;
  }
  sequence.log.truncate(shown);
  sequence.done.reset();
  if (!sequence.in_flight) return requeue(order);
  sequence.in_doubt = sequence.preempted = true;
  running_.erase(order);
  leaving_.insert(order);
}

void Batching::note_wrong(std::vector<WrongResult> wrong) {
  wrong_.insert(wrong_.end(), std::make_move_iterator(wrong.begin()),
                std::make_move_iterator(wrong.end()));
}

// It is so far ahead of who checks it that it had better wait.
bool Batching::waits_for_checks(const Sequence& sequence) const {
  const uint32_t checked = sequence.checked();
  return sequence.fed > checked && sequence.fed - checked >= limits_.unchecked_max;
}

}  // namespace troupe

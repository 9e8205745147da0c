#include "actors/logic/disputes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

std::string outcomes_text(const Dispute& dispute) {
  return fmt::format("position {} of request {} gave {} at the stage and {} at its standby",
                     dispute.position, dispute.request, to_hex(dispute.seat_outcome),
                     to_hex(dispute.standby_outcome));
}

std::vector<WrongResult> both(const Dispute& dispute, const std::string& how) {
  const std::string why = fmt::format("{}; {}", outcomes_text(dispute), how);
  return {{dispute.stage, dispute.seat, why}, {dispute.stage, dispute.standby, why}};
}

}  // namespace

std::vector<WrongResult> Disputes::on_dispute(const Dispute& dispute) {
  const auto known = std::find_if(open_.begin(), open_.end(), [&](const Dispute& one) {
    return one.stage == dispute.stage && one.request == dispute.request &&
           one.position == dispute.position;
  });
  if (known == open_.end()) {
    open_.push_back(dispute);
    if (open_.size() <= kOpenMax) return {};
    const Dispute oldest = open_.front();
    open_.erase(open_.begin());
    return both(oldest, "too many of them are open to tell which is right");
  }
  const Dispute before = std::exchange(*known, dispute);
  const bool same_seat = before.seat == dispute.seat;
  const bool same_standby = before.standby == dispute.standby;
  if (same_seat && same_standby) {
    open_.erase(known);
    return both(dispute, "and again when it was computed anew");
  }
  // A life that was not there before is a third execution.
  const std::string why = outcomes_text(dispute) + "; and at another before";
  if (same_seat && before.standby_outcome == dispute.standby_outcome) {
    open_.erase(known);
    return {{dispute.stage, dispute.seat, why}};
  }
  if (same_standby && before.seat_outcome == dispute.seat_outcome) {
    open_.erase(known);
    return {{dispute.stage, dispute.standby, why}};
  }
  return {};
}

std::vector<WrongResult> Disputes::on_agreed(uint32_t stage, const RequestId& request,
                                             uint32_t position, uint64_t outcome) {
  const auto known = std::find_if(open_.begin(), open_.end(), [&](const Dispute& one) {
    return one.stage == stage && one.request == request && one.position == position;
  });
  if (known == open_.end() || outcome == 0) return {};
  const Dispute dispute = *known;
  open_.erase(known);
  const std::string why =
      fmt::format("{}; computed anew it was {}", outcomes_text(dispute), to_hex(outcome));
  std::vector<WrongResult> wrong;
  if (dispute.seat_outcome != outcome) wrong.push_back({stage, dispute.seat, why});
  if (dispute.standby_outcome != outcome) wrong.push_back({stage, dispute.standby, why});
  return wrong;
}

std::vector<WrongResult> Disputes::on_end(const RequestId& request) {
  std::vector<WrongResult> wrong;
  for (const Dispute& dispute : open_) {
    if (dispute.request != request) continue;
    const auto named = both(dispute, "the request ended before it was computed anew");
    wrong.insert(wrong.end(), named.begin(), named.end());
  }
  std::erase_if(open_, [&](const Dispute& dispute) { return dispute.request == request; });
  return wrong;
}

}  // namespace troupe

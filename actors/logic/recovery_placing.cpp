// What the replica does next. advance() is called after every event and takes all steps that the
// facts allow: place what is nowhere, propose when all are ready. So no step depends on which event
// came last, and a failure in the middle of a recovery is an event like any other.
#include <fmt/format.h>

#include <algorithm>

#include "actors/logic/recovery.h"
#include "base/check.h"

namespace troupe {

ReplicaActions Replica::advance(Instant now, ReplicaActions actions) {
  if (!settled(now)) return actions;
  if (state_ == ReplicaState::kServing && checker_is_gone()) {
    actions.push_back(PauseAction{
        fmt::format("view {} gives way: a standby that checked is gone", view_.number.value),
        std::nullopt});
    state_ = ReplicaState::kLoading;
  }
  if (rests(now, actions)) return actions;
  go_back_to_seats(now, actions);
  place_missing(now, actions);
  if (all_ready()) {
    place_standbys(now, actions);
    if (!view_is_current() || (state_ == ReplicaState::kServing && standbys_wait()))
      propose(now, actions);
  } else if (state_ != ReplicaState::kServing) {
    const bool all_placed = std::all_of(stages_.begin(), stages_.end(),
                                        [](const Stage& life) { return life.placed(); });
    state_ = all_placed ? ReplicaState::kLoading : ReplicaState::kWaiting;
  }
  return actions;
}

// Before the first placement it is worth waiting for all nodes: what is placed is not moved for
// balance later.
bool Replica::settled(Instant now) const {
  const auto taking = static_cast<size_t>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const NodeFacts& facts) { return !facts.draining; }));
  return placed_once_ || (taking > 0 && taking >= spec_.nodes_expected) ||
         (first_tick_ && now - *first_tick_ >= spec_.settle_max);
}

// Losses that follow a stage wherever it goes are not the nodes' fault: moving on would only wear
// out the next one.
bool Replica::rests(Instant now, ReplicaActions& actions) {
  if (now < rest_until_) return true;
  const auto worn =
      std::find_if(moves_.begin(), moves_.end(), [](uint32_t moves) { return moves > kMovesMax; });
  if (worn == moves_.end() || state_ == ReplicaState::kServing) return false;
  const Error why{ErrorCode::kUnavailable,
                  fmt::format("stage {} was moved {} times and lost again each time: it is tried "
                              "again in {:.0f} s",
                              worn - moves_.begin(), *worn, to_seconds(kRest))};
  rest_until_ = now + kRest;
  moves_.assign(moves_.size(), 0);
  stuck(why, now, actions);
  return true;
}

// A planned move that failed, or that a loss elsewhere overtook, is undone as long as the old seat
// lives: whoever is ready brings the replica back sooner than whoever still loads. A draining
// node's move is tried again from the next serving view; an operator sees why and decides.
void Replica::go_back_to_seats(Instant now, ReplicaActions& actions) {
  for (uint32_t stage = 0; stage < view_.seats.size(); ++stage) {
    Stage& life = stages_[stage];
    const bool moves_on = life.placed() && state_ == ReplicaState::kServing;
    if (life.ready() || moves_on || !seat_alive_[stage]) continue;
    if (life.placed()) {
      stop_on(life.node, life.node_incarnation, stage, actions);
      undone_[stage] = fmt::format("a loss went first while it was loading on {}", life.node);
    } else {
      undone_[stage] = life.cause;
    }
    const Seat& seat = view_.seats[stage];
    const Instant not_before = life.not_before;
    life = Stage{};
    life.not_before = not_before;
    life.phase = Stage::Phase::kReady;
    life.node = seat.node;
    life.node_incarnation = seat.node_incarnation;
    life.layers = seat.layers;
    life.seat = seat;
    life.since = now;
  }
}

// Planned moves start only from a view that serves: a recovery is not the time for them.
bool Replica::must_move(const Stage& life) const {
  if (state_ != ReplicaState::kServing || !life.ready()) return false;
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const NodeFacts& facts) {
    return facts.node == life.node && facts.draining;
  });
}

void Replica::place_missing(Instant now, ReplicaActions& actions) {
  const auto is_open = [&](const Stage& life) { return !life.placed() || must_move(life); };
  // Who has a standby need not wait for another life to load.
  for (uint32_t stage = 0; stage < stages_.size(); ++stage) {
    const Stage life = stages_[stage];
    if (!must_move(life)) continue;
    const bool moves = promote(stage, life.node + " is draining", now);
    // A successor whose own node began to drain before it got a seat.
    if (moves && !serves_in(stage, life.node, life.seat.incarnation))
      stop_on(life.node, life.node_incarnation, stage, actions);
  }
  if (std::none_of(stages_.begin(), stages_.end(), is_open)) {
    stuck_.clear();  // nothing wants a place any more: the next time is news again
    return;
  }
  auto placements = place(placement_request());
  if (!placements.ok()) {
    // Seats go before standbys.
    for (uint32_t stage = 0; stage < standbys_.size(); ++stage)
      drop_standby(stage, now + kStandbyRetryAfter, actions);
    placements = place(placement_request());
  }
  if (!placements.ok()) return stuck(placements.error(), now, actions);
  stuck_.clear();
  placed_once_ = true;
  for (const Placement& placement : placements.value()) {
    const Stage& life = stages_[placement.stage];
    if (!is_open(life)) continue;
    const bool failed_there =
        std::any_of(avoided_.begin(), avoided_.end(), [&](const Refusal& refusal) {
          return refusal.stage == placement.stage && refusal.node == placement.node;
        });
    if (failed_there && now < life.not_before)
      continue;  // there is no other node: a tick tries again
    assign(placement, life.ready() ? fmt::format("{} is draining", life.node) : life.cause, now,
           actions);
  }
}

PlacementRequest Replica::placement_request() const {
  PlacementRequest request{.layers = spec_.layers,
                           .layer_bytes = spec_.layer_bytes,
                           .embedding_bytes = spec_.embedding_bytes,
                           .head_bytes = spec_.head_bytes,
                           .journal_bytes = spec_.journal_bytes,
                           .layer_cost = spec_.layer_cost,
                           .embedding_cost = spec_.embedding_cost,
                           .head_cost = spec_.head_cost,
                           .stages = spec_.stages,
                           .layer_split = spec_.layer_split,
                           .nodes = {},
                           .kept = {},
                           .barred = {},
                           .avoided = {}};
  request.nodes = nodes_;
  for (uint32_t stage = 0; stage < stages_.size(); ++stage) {
    const Stage& life = stages_[stage];
    if (life.placed() && !must_move(life)) request.kept.push_back({stage, life.node, life.layers});
  }
  // Standbys take room, too.
  for (uint32_t stage = 0; stage < standbys_.size(); ++stage) {
    const Stage& standby = standbys_[stage];
    if (!standby.placed()) continue;
    const uint64_t bytes = stage_bytes(request, stage, standby.layers);
    for (NodeFacts& facts : request.nodes)
      if (facts.node == standby.node) facts.memory_free -= std::min(facts.memory_free, bytes);
  }
  for (const Refusal& refusal : barred_) request.barred.push_back({refusal.stage, refusal.node});
  for (const Refusal& refusal : avoided_) request.avoided.push_back({refusal.stage, refusal.node});
  return request;
}

// `cause` is why the stage leaves the place it had.
void Replica::assign(const Placement& placement, std::string cause, Instant now,
                     ReplicaActions& actions) {
  const auto facts = std::find_if(nodes_.begin(), nodes_.end(), [&](const NodeFacts& candidate) {
    return candidate.node == placement.node;
  });
  TROUPE_CHECK(facts != nodes_.end(), "stages are placed on members only");
  Stage& life = stages_[placement.stage];
  // A successor whose own node began to drain before it got a seat.
  if (life.ready() && !serves_in(placement.stage, life.node, life.seat.incarnation))
    stop_on(life.node, life.node_incarnation, placement.stage, actions);
  undone_[placement.stage].clear();
  // Its standby is there already, and is what comes up ready.
  if (is_standby(placement.stage, placement.node)) standbys_[placement.stage] = Stage{};
  life = Stage{};
  life.phase = Stage::Phase::kLoading;
  life.node = placement.node;
  life.node_incarnation = facts->incarnation;
  life.layers = placement.layers;
  life.attempt = ++last_attempt_;
  life.since = now;
  life.cause = std::move(cause);
  actions.push_back(AssignAction{placement.node, facts->incarnation, placement.stage,
                                 placement.layers, false, life.attempt});
}

// Said once for each reason. A replica that serves is not stuck: it only cannot move.
void Replica::stuck(const Error& why, Instant now, ReplicaActions& actions) {
  const bool serves = state_ == ReplicaState::kServing;
  std::string text = serves ? "cannot move off a draining node: " : "stuck: ";
  text += why.message;
  if (stuck_ == text) return;
  stuck_ = text;
  note(now, std::move(text), !serves);
  if (!serves) actions.push_back(StuckAction{why});
}

bool Replica::all_ready() const {
  return std::all_of(stages_.begin(), stages_.end(),
                     [](const Stage& life) { return life.ready(); });
}

bool Replica::view_is_current() const {
  return state_ >= ReplicaState::kProposing && same_seats();
}

bool Replica::same_seats() const {
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    if (view_.seats[stage].incarnation != stages_[stage].seat.incarnation) return false;
  return true;
}

void Replica::propose(Instant now, ReplicaActions& actions) {
  if (state_ == ReplicaState::kServing)
    actions.push_back(PauseAction{fmt::format("view {} gives way to a {}", view_.number.value,
                                              same_seats() ? "new standby" : "planned move"),
                                  std::nullopt});
  for (uint32_t stage = 0; stage < view_.seats.size(); ++stage) {
    const Seat& seat = view_.seats[stage];
    if (seat_alive_[stage] && seat.node != stages_[stage].node)
      leftovers_.push_back({stage, seat.node, seat.node_incarnation});
  }
  view_.number = ViewNumber{std::max(last_, view_.number).value + 1};
  view_.seats.clear();
  for (const Stage& life : stages_) view_.seats.push_back(life.seat);
  view_.standbys = ready_standbys();
  seat_alive_.assign(stages_.size(), true);
  state_ = ReplicaState::kProposing;
  step_since_ = now;
  actions.push_back(ProposeAction{view_});
}

void Replica::serve(Instant now, ReplicaActions& actions) {
  state_ = ReplicaState::kServing;
  note(now, fmt::format("view {} serves: {}", view_.number.value, changes_text()));
  for (const Leftover& leftover : leftovers_)
    if (stages_[leftover.stage].node != leftover.node && !is_standby(leftover.stage, leftover.node))
      stop_on(leftover.node, leftover.node_incarnation, leftover.stage, actions);
  leftovers_.clear();
  avoided_.clear();
  stuck_.clear();
  note_unprotected(now);
  served_since_ = now;
  for (size_t stage = 0; stage < served_.size(); ++stage)
    if (served_[stage].node != view_.seats[stage].node) ++moves_[stage];
  served_ = view_.seats;
  served_standbys_ = view_.standbys;
  for (Stage& life : stages_) life.cause.clear();
  actions.push_back(ServeAction{view_});
}

// What is different from the last view that served, and why.
std::string Replica::changes_text() const {
  std::string text;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const Seat& seat = view_.seats[stage];
    const std::string& cause = stages_[stage].cause;
    std::string change;
    if (served_.empty()) {
      change = fmt::format("stage {} on {}", stage, seat.node);
    } else if (served_[stage].node != seat.node) {
      change = fmt::format("stage {} moved from {} to {}", stage, served_[stage].node, seat.node);
    } else if (served_[stage].incarnation != seat.incarnation) {
      change = fmt::format("stage {} restarted on {}", stage, seat.node);
    } else {
      continue;
    }
    if (!served_.empty()) change += fmt::format(" ({})", cause);
    text.append(text.empty() ? "" : ", ").append(change);
  }
  for (const Standby& standby : view_.standbys) {
    const bool known = std::any_of(
        served_standbys_.begin(), served_standbys_.end(),
        [&](const Standby& before) { return before.seat.incarnation == standby.seat.incarnation; });
    if (!known)
      text += fmt::format("{}{} stands by for stage {}", text.empty() ? "" : ", ",
                          standby.seat.node, standby.stage);
  }
  if (text.empty()) text = "as before";
  return text;
}

}  // namespace troupe

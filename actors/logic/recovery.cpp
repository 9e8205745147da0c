// What the replica hears. Each event changes the facts about its stages; advance()
// (recovery_placing.cpp) then takes every step that the facts allow.
#include "actors/logic/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace troupe {

const char* to_string(ReplicaState state) {
  switch (state) {
    case ReplicaState::kWaiting:
      return "waiting";
    case ReplicaState::kLoading:
      return "loading";
    case ReplicaState::kProposing:
      return "proposing";
    case ReplicaState::kInstalling:
      return "installing";
    case ReplicaState::kServing:
      return "serving";
  }
  return "unknown";
}

Replica::Replica(ReplicaSpec spec, ViewNumber last, Incarnation batcher,
                 std::vector<std::byte> batcher_address)
    : spec_(std::move(spec)),
      last_(last),
      view_{spec_.deployment, last, batcher, std::move(batcher_address), {}, {}},
      stages_(spec_.stages),
      standbys_(spec_.stages),
      standby_trouble_(spec_.stages),
      undone_(spec_.stages),
      moves_(spec_.stages) {}

ReplicaActions Replica::on_nodes(const std::vector<NodeFacts>& nodes, const std::string& why,
                                 Instant now) {
  nodes_ = nodes;
  ReplicaActions actions;
  const auto gone = [&](const auto& place) {
    return living(place.node, place.node_incarnation) == nullptr;
  };
  std::erase_if(barred_, gone);
  std::erase_if(avoided_, gone);
  std::erase_if(leftovers_, gone);
  check_standbys(now, actions);  // before seats are lost: who is gone takes none
  // A node counts as one fault, however many stages it takes along.
  std::set<NodeId> lost;
  const auto cause_of = [&](const NodeId& node) {
    std::string cause = fmt::format("{} was lost: {}", node, why);
    if (lost.insert(node).second) fault(now, cause);
    return cause;
  };
  for (uint32_t stage = 0; stage < stages_.size(); ++stage) {
    if (stage < view_.seats.size() && seat_alive_[stage] && gone(view_.seats[stage]))
      seat_died(stage, cause_of(view_.seats[stage].node), false, actions);
    if (stages_[stage].placed() && gone(stages_[stage]))
      give_up(stage, cause_of(stages_[stage].node), now, actions);
  }
  return advance(now, std::move(actions));
}

ReplicaActions Replica::on_stage_ready(uint32_t stage, const Seat& seat, Instant now) {
  ReplicaActions actions;
  if (std::find(dead_.begin(), dead_.end(), seat.incarnation) != dead_.end()) return actions;
  if (is_standby(stage, seat.node)) {
    standby_ready(stage, seat, now, actions);
    return advance(now, std::move(actions));
  }
  const bool is_ours = stage < stages_.size() && stages_[stage].placed() &&
                       stages_[stage].node == seat.node &&
                       stages_[stage].node_incarnation == seat.node_incarnation;
  if (!is_ours) {
    if (!serves_in(stage, seat.node, seat.incarnation))
      stop_on(seat.node, seat.node_incarnation, stage, actions);
    return actions;
  }
  Stage& life = stages_[stage];
  if (life.ready() && life.seat.incarnation == seat.incarnation) return actions;  // a repeat
  if (life.ready()) {
    // News of its end was overtaken by news of its successor.
    life.cause = fmt::format("stage {} on {} was restarted", stage, seat.node);
    fault(now, life.cause);
    life_ended(stage, life.seat.incarnation, life.cause, true, actions);
    life.phase = Stage::Phase::kRestarting;
  }
  if (seat.layers != life.layers || !seat.incarnation) {
    const std::string why = fmt::format(
        "stage {} on {} came up with layers {} to {} as incarnation {}, assigned were {} to {}",
        stage, seat.node, seat.layers.first, seat.layers.last, to_string(seat.incarnation),
        life.layers.first, life.layers.last);
    note(now, why);
    avoid(stage);
    give_up(stage, why, now, actions);
    return advance(now, std::move(actions));
  }
  life.phase = Stage::Phase::kReady;
  life.seat = seat;
  life.since = now;
  return advance(now, std::move(actions));
}

ReplicaActions Replica::on_stage_lost(uint32_t stage, const NodeId& node, Incarnation incarnation,
                                      bool restarting, const std::string& why, Instant now) {
  ReplicaActions actions;
  if (stage >= stages_.size()) return actions;
  Stage& life = stages_[stage];
  const std::string cause = fmt::format("stage {} on {} was lost: {}", stage, node, why);
  if (is_standby(stage, node)) {
    standby_lost(stage, incarnation, restarting, cause, now, actions);
    life_ended(stage, incarnation, cause, true, actions);
    return advance(now, std::move(actions));
  }
  const bool is_here = life.placed() && life.node == node;
  if (!is_here || (life.ready() && life.seat.incarnation != incarnation)) {
    // Late news of an earlier life; or of the one that still serves while its successor loads
    // elsewhere.
    if (serves_in(stage, node, incarnation)) fault(now, cause);
    life_ended(stage, incarnation, cause, true, actions);
    // Nobody wants the next life of a stage that has its place elsewhere by now.
    for (const NodeFacts& facts : nodes_)
      if (restarting && !is_here && facts.node == node)
        stop_on(node, facts.incarnation, stage, actions);
    return advance(now, std::move(actions));
  }
  if (life.ready()) {
    fault(now, cause);
  } else {
    note(now, cause, true);
  }
  life_ended(stage, incarnation, cause, true, actions);
  life.cause = cause;
  if (!restarting) {
    avoid(stage);
    give_up(stage, cause, now, actions);
  } else if (life.ready()) {
    life.phase = Stage::Phase::kRestarting;
    life.since = now;
    // Its standby is ready now; the life that is being started there follows in its turn.
    const Stage restarting_life = life;
    if (promote(stage, cause, now)) standbys_[stage] = restarting_life;
  }
  return advance(now, std::move(actions));
}

ReplicaActions Replica::on_stage_heard(uint32_t stage, const NodeId& node) const {
  ReplicaActions actions;
  if (state_ != ReplicaState::kServing) return actions;  // it may still be of use
  const bool seated = stage < view_.seats.size() && view_.seats[stage].node == node;
  const bool placed = stage < stages_.size() && stages_[stage].node == node;
  if (seated || placed || is_standby(stage, node)) return actions;
  for (const NodeFacts& facts : nodes_)
    if (facts.node == node) stop_on(node, facts.incarnation, stage, actions);
  return actions;
}

ReplicaActions Replica::on_wrong(uint32_t stage, Incarnation wrong, const std::string& why,
                                 Instant now) {
  ReplicaActions actions;
  if (stage >= stages_.size()) return actions;
  const Stage& life = stages_[stage];
  const Stage& standby = standbys_[stage];
  if (life.ready() && life.seat.incarnation == wrong) {
    const std::string cause =
        fmt::format("stage {} on {} computed something wrong: {}", stage, life.node, why);
    fault(now, cause);
    avoid(stage);
    give_up(stage, cause, now, actions);
  } else if (standby.ready() && standby.seat.incarnation == wrong) {
    note(now, fmt::format("the standby of stage {} on {} computed something wrong: {}", stage,
                          standby.node, why));
    drop_standby(stage, now, actions);
  }
  return advance(now, std::move(actions));
}

ReplicaActions Replica::on_assign_failed(uint64_t attempt, const Error& why, Instant now) {
  ReplicaActions actions;
  const auto is_meant = [&](const Stage& life) { return life.attempt == attempt; };
  const auto standby = std::find_if(standbys_.begin(), standbys_.end(), is_meant);
  if (standby != standbys_.end() && standby->placed()) {
    const auto stage = static_cast<uint32_t>(standby - standbys_.begin());
    note(now, fmt::format("{} could not load a standby of stage {}: {}", standby->node, stage,
                          to_string(why)));
    barred_.push_back({stage, standby->node, standby->node_incarnation});
    drop_standby(stage, now + kStandbyRetryAfter, actions);
    return advance(now, std::move(actions));
  }
  const auto life = std::find_if(stages_.begin(), stages_.end(), is_meant);
  if (life == stages_.end() || !life->placed() || life->ready()) return actions;
  const auto stage = static_cast<uint32_t>(life - stages_.begin());
  const std::string cause =
      fmt::format("{} could not load stage {}: {}", life->node, stage, to_string(why));
  note(now, cause);
  barred_.push_back({stage, life->node, life->node_incarnation});
  give_up(stage, cause, now, actions);
  return advance(now, std::move(actions));
}

Result<ReplicaActions> Replica::on_move(uint32_t stage, const NodeId& node, Instant now) {
  ReplicaActions actions;
  const NodeId under_way = moving_to(stage);
  const bool repeated = !under_way.empty() && under_way == node;
  if (repeated && state_ == ReplicaState::kServing) return actions;
  TROUPE_TRY(const Placement placement, check_move(stage, node));
  // Whoever asks for a node that refused the stage before may have mended it.
  std::erase_if(barred_, [&](const Refusal& refusal) {
    return refusal.stage == stage && refusal.node == node;
  });
  assign(placement, "as asked", now, actions);
  return actions;
}

// One at a time: the old seat holds its memory until the next view serves, and the placement does
// not count that.
Result<Placement> Replica::check_move(uint32_t stage, const NodeId& node) const {
  if (stage >= stages_.size())
    return Error{ErrorCode::kNotFound, fmt::format("no stage {}: {} has stages 0 to {}", stage,
                                                   spec_.deployment, stages_.size() - 1)};
  if (state_ != ReplicaState::kServing)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} is {}: stages are moved while it serves; try again then",
                             spec_.deployment, to_string(state_))};
  const auto target = std::find_if(nodes_.begin(), nodes_.end(),
                                   [&](const NodeFacts& facts) { return facts.node == node; });
  if (target == nodes_.end()) {
    std::string names;
    for (const NodeFacts& facts : nodes_)
      names.append(names.empty() ? "" : ", ").append(facts.node);
    return Error{ErrorCode::kNotFound,
                 fmt::format("no node {} takes stages: there are {}", node, names)};
  }
  for (uint32_t other = 0; other < stages_.size(); ++other)
    if (const NodeId to = moving_to(other); !to.empty())
      return Error{ErrorCode::kConflict,
                   fmt::format("stage {} is moving from {} to {}: moves are made one at a time; "
                               "wait until it is there",
                               other, view_.seats[other].node, to)};
  if (stages_[stage].node == node)
    return Error{ErrorCode::kAlreadyExists, fmt::format("stage {} is on {} already", stage, node)};
  if (target->draining)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is draining and takes no stages: undrain it first, or name "
                             "another node",
                             node)};
  return place_on(placement_request(), stage, node);
}

NodeId Replica::moving_to(uint32_t stage) const {
  if (stage >= view_.seats.size() || !stages_[stage].placed()) return {};
  const NodeId& node = stages_[stage].node;
  return node == view_.seats[stage].node ? NodeId{} : node;
}

std::string Replica::move_trouble(uint32_t stage) const {
  if (stage >= stages_.size()) return {};
  return must_move(stages_[stage]) && !stuck_.empty() ? stuck_ : undone_[stage];
}

ReplicaActions Replica::on_committed(ViewNumber number, Instant now) {
  ReplicaActions actions;
  committed_ = std::max(committed_, number);
  last_ = std::max(last_, number);
  // Another number is a proposal that was overtaken by a loss: nobody ever installs it.
  if (state_ != ReplicaState::kProposing || number != view_.number) return actions;
  state_ = ReplicaState::kInstalling;
  step_since_ = now;
  install_repeated_ = false;
  for (Stage& life : stages_) life.installed = false;
  actions.push_back(InstallAction{view_});
  return actions;
}

ReplicaActions Replica::on_conflict(ViewNumber newest, Instant now) {
  ReplicaActions actions;
  if (newest < committed_) return actions;  // an answer from before
  if (state_ != ReplicaState::kProposing) {
    last_ = std::max(last_, newest);
    return actions;
  }
  // The ledger stands right below this proposal: the answer is to an earlier one.
  if (newest.value + 1 == view_.number.value) return actions;
  last_ = newest;
  view_.number = ViewNumber{newest.value + 1};
  view_.standbys = ready_standbys();
  step_since_ = now;
  actions.push_back(ProposeAction{view_});
  return actions;
}

ReplicaActions Replica::on_installed(uint32_t stage, ViewNumber number, Instant now) {
  ReplicaActions actions;
  if (state_ != ReplicaState::kInstalling || number != view_.number || stage >= stages_.size())
    return actions;
  stages_[stage].installed = true;
  const bool all =
      std::all_of(stages_.begin(), stages_.end(), [](const Stage& life) { return life.installed; });
  if (all) serve(now, actions);
  return advance(now, std::move(actions));
}

ReplicaActions Replica::on_tick(Instant now) {
  if (!first_tick_) first_tick_ = now;
  ReplicaActions actions;
  if (state_ == ReplicaState::kServing && now - served_since_ >= kSuccess)
    moves_.assign(moves_.size(), 0);
  check_view(now, actions);
  check_stages(now, actions);
  check_standbys(now, actions);
  return advance(now, std::move(actions));
}

// Deadlines of the proposal and of the installation.
void Replica::check_view(Instant now, ReplicaActions& actions) {
  const Duration waited = now - step_since_;
  if (state_ == ReplicaState::kProposing && waited > spec_.install_max) {
    step_since_ = now;
    actions.push_back(ProposeAction{view_});
  }
  if (state_ != ReplicaState::kInstalling) return;
  if (!install_repeated_ && waited > spec_.install_max / 2) {
    install_repeated_ = true;
    actions.push_back(InstallAction{view_});
  }
  if (waited <= spec_.install_max) return;
  for (uint32_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage].installed) continue;
    const std::string why =
        fmt::format("stage {} on {} did not acknowledge view {} within {:.1f} s", stage,
                    stages_[stage].node, view_.number.value, to_seconds(spec_.install_max));
    fault(now, why);
    avoid(stage);
    give_up(stage, why, now, actions);
  }
}

// Deadlines of stages that load.
void Replica::check_stages(Instant now, ReplicaActions& actions) {
  for (uint32_t stage = 0; stage < stages_.size(); ++stage) {
    Stage& life = stages_[stage];
    const bool loads =
        life.phase == Stage::Phase::kLoading || life.phase == Stage::Phase::kRestarting;
    if (!loads || now - life.since <= spec_.load_max) continue;
    const std::string why = fmt::format("stage {} on {} was not ready within {:.0f} s", stage,
                                        life.node, to_seconds(spec_.load_max));
    note(now, why);
    avoid(stage);
    give_up(stage, why, now, actions);
  }
}

// The stage is nowhere now; advance() finds another place. The node is told even if it said itself
// that the stage ended: that news may have been of an earlier attempt, and nothing may be left
// behind.
void Replica::give_up(uint32_t stage, const std::string& why, Instant now,
                      ReplicaActions& actions) {
  Stage& life = stages_[stage];
  if (life.ready()) life_ended(stage, life.seat.incarnation, why, false, actions);
  stop_on(life.node, life.node_incarnation, stage, actions);
  life = Stage{};
  life.cause = why;
  life.not_before = now + kRetryAfter;
  if (stage < view_.seats.size() && !seat_alive_[stage]) promote(stage, why, now);
}

// This life of a stage is over, and so is every view that it has a seat in.
void Replica::life_ended(uint32_t stage, Incarnation incarnation, const std::string& why,
                         bool crashed, ReplicaActions& actions) {
  if (!incarnation) return;  // it had not come up yet
  dead_.push_back(incarnation);
  if (dead_.size() > kDeadMax) dead_.pop_front();
  if (stage < view_.seats.size() && view_.seats[stage].incarnation == incarnation)
    seat_died(stage, why, crashed, actions);
}

void Replica::seat_died(uint32_t stage, const std::string& why, bool crashed,
                        ReplicaActions& actions) {
  seat_alive_[stage] = false;
  if (state_ == ReplicaState::kServing)
    actions.push_back(PauseAction{why, crashed ? std::optional(stage) : std::nullopt});
  state_ = ReplicaState::kLoading;
}

bool Replica::serves_in(uint32_t stage, const NodeId& node, Incarnation incarnation) const {
  return stage < view_.seats.size() && seat_alive_[stage] && view_.seats[stage].node == node &&
         view_.seats[stage].incarnation == incarnation;
}

void Replica::avoid(uint32_t stage) {
  const Stage& life = stages_[stage];
  const bool known = std::any_of(avoided_.begin(), avoided_.end(), [&](const Refusal& refusal) {
    return refusal.stage == stage && refusal.node == life.node;
  });
  if (!known) avoided_.push_back({stage, life.node, life.node_incarnation});
}

const NodeFacts* Replica::living(const NodeId& node, Incarnation incarnation) const {
  const auto known = std::find_if(nodes_.begin(), nodes_.end(), [&](const NodeFacts& facts) {
    return facts.node == node && facts.incarnation == incarnation;
  });
  return known == nodes_.end() ? nullptr : &*known;
}

void Replica::stop_on(const NodeId& node, Incarnation incarnation, uint32_t stage,
                      ReplicaActions& actions) const {
  if (living(node, incarnation) != nullptr) actions.push_back(StopAction{node, stage});
}

void Replica::fault(Instant now, const std::string& text) {
  ++faults_;
  note(now, text, true);
}

void Replica::note(Instant now, std::string text, bool told) {
  history_.push_back({++last_event_, told, now, std::move(text)});
  if (history_.size() > kHistoryMax) history_.erase(history_.begin());
}

ReplicaState Replica::state() const {
  return state_;
}
const View& Replica::view() const {
  return view_;
}
uint32_t Replica::faults() const {
  return faults_;
}
const std::vector<ReplicaEvent>& Replica::history() const {
  return history_;
}

}  // namespace troupe

// Standbys: another life of a stage, on another node, that follows its KV cache and takes its seat
// at once when it is lost. They come after everything else: they are placed only while the replica
// serves, one at a time, and they give way when a seat needs their room.
#include <fmt/format.h>

#include <algorithm>

#include "actors/logic/recovery.h"

namespace troupe {

// The seat is lost, and somebody followed it: that life is ready, and holds almost everything.
bool Replica::promote(uint32_t stage, const std::string& why, Instant now) {
  Stage& standby = standbys_[stage];
  if (!follows(stage)) return false;
  note(now, fmt::format("{} takes the seat of stage {}", standby.node, stage));
  stages_[stage] = std::exchange(standby, Stage{});
  stages_[stage].cause = why;
  stages_[stage].since = now;
  return true;
}

// It is ready and has a place in the view, so its stage has fed it.
bool Replica::follows(uint32_t stage) const {
  const Stage& standby = standbys_[stage];
  return standby.ready() &&
         std::any_of(view_.standbys.begin(), view_.standbys.end(), [&](const Standby& known) {
           return known.stage == stage && known.seat.incarnation == standby.seat.incarnation;
         });
}

bool Replica::is_standby(uint32_t stage, const NodeId& node) const {
  return stage < standbys_.size() && standbys_[stage].placed() && standbys_[stage].node == node;
}

// It is not one any more, or will not become one; another is looked for after a while.
void Replica::drop_standby(uint32_t stage, Instant not_before, ReplicaActions& actions) {
  Stage& standby = standbys_[stage];
  if (standby.placed()) stop_on(standby.node, standby.node_incarnation, stage, actions);
  standby = Stage{};
  standby.not_before = not_before;
}

ReplicaActions Replica::on_policy(StandbyPolicy policy, Instant now) {
  ReplicaActions actions;
  if (policy == spec_.standby) return actions;
  spec_.standby = policy;
  if (policy != StandbyPolicy::kNone) {
    note(now, fmt::format("every stage gets a standby ({})", to_string(policy)));
    return advance(now, std::move(actions));
  }
  note(now, "no standbys any more");
  for (uint32_t stage = 0; stage < standbys_.size(); ++stage) {
    drop_standby(stage, now, actions);
    standby_trouble_[stage].clear();
  }
  return advance(now, std::move(actions));
}

void Replica::standby_ready(uint32_t stage, const Seat& seat, Instant now,
                            ReplicaActions& actions) {
  Stage& standby = standbys_[stage];
  if (seat.layers != standby.layers || !seat.incarnation)
    return drop_standby(stage, now + kStandbyRetryAfter, actions);
  standby.phase = Stage::Phase::kReady;
  standby.seat = seat;
  standby.since = now;
}

void Replica::standby_lost(uint32_t stage, Incarnation incarnation, bool restarting,
                           const std::string& why, Instant now, ReplicaActions& actions) {
  Stage& standby = standbys_[stage];
  if (standby.ready() && standby.seat.incarnation != incarnation) return;  // of an earlier life
  note(now, "standby: " + why, true);
  if (!restarting) return drop_standby(stage, now + kStandbyRetryAfter, actions);
  if (standby.ready()) standby.since = now;
  standby.phase = Stage::Phase::kRestarting;
}

void Replica::check_standbys(Instant now, ReplicaActions& actions) {
  for (uint32_t stage = 0; stage < standbys_.size(); ++stage) {
    const Stage& standby = standbys_[stage];
    if (!standby.placed()) continue;
    const NodeFacts* facts = living(standby.node, standby.node_incarnation);
    if (facts == nullptr || facts->draining)
      drop_standby(stage, now, actions);
    else if (!standby.ready() && now - standby.since > spec_.load_max)
      drop_standby(stage, now + kStandbyRetryAfter, actions);
  }
}

// One at a time, and only while all is well: every stage is ready.
void Replica::place_standbys(Instant now, ReplicaActions& actions) {
  const bool is_well = state_ == ReplicaState::kServing && same_seats();
  if (spec_.standby == StandbyPolicy::kNone || !is_well) return;
  const auto loads = [](const Stage& life) { return life.placed() && !life.ready(); };
  if (std::any_of(standbys_.begin(), standbys_.end(), loads)) return;
  for (uint32_t stage = 0; stage < standbys_.size(); ++stage) {
    Stage& standby = standbys_[stage];
    if (standby.placed() || now < standby.not_before) continue;
    const NodeFacts* node = standby_node(stage);
    if (node == nullptr) {
      cannot_follow(stage, now);
      continue;
    }
    standby_trouble_[stage].clear();
    standby = Stage{};
    standby.phase = Stage::Phase::kLoading;
    standby.node = node->node;
    standby.node_incarnation = node->incarnation;
    standby.layers = stages_[stage].layers;
    standby.attempt = ++last_attempt_;
    standby.since = now;
    actions.push_back(
        AssignAction{node->node, node->incarnation, stage, standby.layers, true, standby.attempt});
    return;
  }
}

bool Replica::standby_comes(uint32_t stage) const {
  return stage < standbys_.size() && standbys_[stage].placed() && !follows(stage);
}

std::string Replica::standby_trouble(uint32_t stage) const {
  return stage < standby_trouble_.size() ? standby_trouble_[stage] : std::string{};
}

// Said once, until one is placed after all.
void Replica::cannot_follow(uint32_t stage, Instant now) {
  std::string& trouble = standby_trouble_[stage];
  if (!trouble.empty()) return;
  trouble = "no other node has room for a standby";
  note(now, fmt::format("stage {} is unprotected: {}", stage, trouble));
}

// A stage that had a standby and has none in the view that serves now.
void Replica::note_unprotected(Instant now) {
  if (spec_.standby == StandbyPolicy::kNone) return;
  for (const Standby& before : served_standbys_)
    if (!follows(before.stage))
      note(now, fmt::format("stage {} is unprotected until it has another standby", before.stage));
}

// Not the stage's own node; if possible none that has a stage beside it, because two adjacent
// losses cost the most; then the node with the least to do. Null if none has room.
const NodeFacts* Replica::standby_node(uint32_t stage) const {
  const PlacementRequest request = placement_request();
  const auto on = [&](const std::vector<Stage>& lives, const NodeFacts& facts) {
    return std::count_if(lives.begin(), lives.end(), [&](const Stage& life) {
      return life.placed() && life.node == facts.node;
    });
  };
  const auto has_neighbour = [&](const NodeFacts& facts) {
    return (stage > 0 && stages_[stage - 1].node == facts.node) ||
           (stage + 1 < stages_.size() && stages_[stage + 1].node == facts.node);
  };
  const NodeFacts* best = nullptr;
  std::tuple<bool, std::ptrdiff_t> best_cost;
  for (const NodeFacts& facts : nodes_) {
    const bool barred = std::any_of(barred_.begin(), barred_.end(), [&](const Refusal& refusal) {
      return refusal.stage == stage && refusal.node == facts.node;
    });
    if (facts.draining || barred || facts.node == stages_[stage].node) continue;
    if (!place_on(request, stage, facts.node).ok()) continue;
    const std::tuple<bool, std::ptrdiff_t> cost{has_neighbour(facts),
                                                on(stages_, facts) + on(standbys_, facts)};
    if (best != nullptr && cost >= best_cost) continue;
    best = &facts;
    best_cost = cost;
  }
  return best;
}

// A new view is worth its short pause when a standby has come up, or is to follow in another way,
// and no other is about to come up.
bool Replica::standbys_wait() const {
  bool waits = false;
  for (uint32_t stage = 0; stage < standbys_.size(); ++stage) {
    const Stage& standby = standbys_[stage];
    if (standby.placed() && !standby.ready()) return false;
    waits = waits || (standby.ready() && !follows(stage));
  }
  const auto in_another_way = [&](const Standby& known) { return known.policy != spec_.standby; };
  return waits || (spec_.standby != StandbyPolicy::kNone &&
                   std::any_of(view_.standbys.begin(), view_.standbys.end(), in_another_way));
}

// Tokens are held back until the standbys that the view names have checked them: one that will not
// do so any more must not be named any longer, whatever else is under way.
bool Replica::checker_is_gone() const {
  return std::any_of(view_.standbys.begin(), view_.standbys.end(), [&](const Standby& known) {
    const Stage& standby = standbys_[known.stage];
    return known.policy == StandbyPolicy::kInput &&
           !(standby.ready() && standby.seat.incarnation == known.seat.incarnation);
  });
}

std::vector<Standby> Replica::ready_standbys() const {
  std::vector<Standby> standbys;
  for (uint32_t stage = 0; stage < standbys_.size(); ++stage)
    if (standbys_[stage].ready()) standbys.push_back({stage, standbys_[stage].seat, spec_.standby});
  return standbys;
}

}  // namespace troupe

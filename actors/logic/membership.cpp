#include "actors/logic/membership.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe {

Membership::Membership(Limits limits) : limits_(limits) {}

HelloOutcome Membership::hello(const NodeId& node, Incarnation incarnation, Instant now) {
  using Kind = HelloOutcome::Kind;
  if (node.empty() || !incarnation)
    return {Kind::kRefused, {}, "a node needs a name and an incarnation other than 0"};
  if (dead(node, incarnation))
    return {Kind::kRefused,
            {},
            fmt::format("incarnation {} of {} was declared dead: drop all state and come back as a "
                        "new one",
                        to_string(incarnation), node)};
  const auto known = members_.find(node);
  if (known == members_.end()) {
    if (members_.size() >= limits_.members_max)
      return {Kind::kRefused,
              {},
              fmt::format("the cluster has {} nodes, allowed are {}", members_.size(),
                          limits_.members_max)};
    members_[node] = Member{node, incarnation, now};
    return {Kind::kJoined, {}, {}};
  }
  const Incarnation old = known->second.incarnation;
  if (old == incarnation) return {Kind::kKnown, {}, {}};
  bury(node, old);
  known->second = Member{node, incarnation, now};
  return {Kind::kReplaced, old, {}};
}

bool Membership::lost(const NodeId& node, Incarnation incarnation) {
  if (!incarnation) return false;
  bury(node, incarnation);
  const auto known = members_.find(node);
  if (known == members_.end() || known->second.incarnation != incarnation) return false;
  members_.erase(known);
  return true;
}

std::optional<Member> Membership::find(const NodeId& node) const {
  const auto known = members_.find(node);
  if (known == members_.end()) return std::nullopt;
  return known->second;
}

bool Membership::dead(const NodeId& node, Incarnation incarnation) const {
  return std::find(dead_.begin(), dead_.end(), Life{node, incarnation}) != dead_.end();
}

std::vector<Member> Membership::members() const {
  std::vector<Member> list;
  for (const auto& [node, member] : members_) list.push_back(member);
  return list;
}

void Membership::bury(const NodeId& node, Incarnation incarnation) {
  if (dead(node, incarnation)) return;
  dead_.push_back({node, incarnation});
  if (dead_.size() > limits_.dead_max) dead_.pop_front();
}

}  // namespace troupe

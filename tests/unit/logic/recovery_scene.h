// A replica in a scene told as text: every step is one line of actions.
#pragma once

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/logic/recovery.h"

namespace troupe::test {

inline constexpr uint64_t kMiB = 1 << 20;

// By stage and node: the newest assignment that was told as text.
inline std::map<std::pair<uint32_t, NodeId>, uint64_t> attempts_told;

inline std::string text(const ReplicaAction& action) {
  const auto view_text = [](const View& view) {
    std::string seats;
    for (const Seat& seat : view.seats)
      seats += fmt::format(" {}.{}", seat.node, seat.incarnation.value);
    return fmt::format("{}:{}", view.number.value, seats);
  };
  struct Visitor {
    decltype(view_text)& view;
    std::string operator()(const AssignAction& a) const {
      attempts_told[{a.stage, a.node}] = a.attempt;
      return fmt::format("assign {} to {}.{}", a.stage, a.node, a.node_incarnation.value);
    }
    std::string operator()(const StopAction& a) const {
      return fmt::format("stop {} on {}", a.stage, a.node);
    }
    std::string operator()(const ProposeAction& a) const {
      return fmt::format("propose {}", view(a.view));
    }
    std::string operator()(const InstallAction& a) const {
      return fmt::format("install {}", view(a.view));
    }
    std::string operator()(const ServeAction& a) const {
      return fmt::format("serve {}", view(a.view));
    }
    std::string operator()(const PauseAction& a) const { return fmt::format("pause ({})", a.why); }
    std::string operator()(const StuckAction& a) const {
      return fmt::format("stuck ({})", a.why.message);
    }
  };
  return std::visit(Visitor{view_text}, action);
}

inline std::string text(const ReplicaActions& actions) {
  std::string all;
  for (const ReplicaAction& action : actions)
    all.append(all.empty() ? "" : "; ").append(text(action));
  return all;
}

// A replica of three stages with ten layers each and the nodes around it. Node incarnations count
// 1, 2, … per name; stage incarnations are given.
struct Scene {
  ReplicaSpec spec;
  std::vector<NodeFacts> nodes;
  Instant now{1h};
  Replica replica;

  explicit Scene(uint32_t stages = 3, uint64_t last = 0, ReplicaSpec base = {})
      : spec(with_stages(std::move(base), stages)),
        replica(spec, ViewNumber{last}, Incarnation{77}, {}) {}

  static ReplicaSpec with_stages(ReplicaSpec spec, uint32_t stages) {
    spec.deployment = "demo";
    spec.layers = 10 * stages;
    spec.layer_bytes = kMiB;
    spec.stages = stages;
    spec.nodes_expected = stages;
    return spec;
  }

  std::string join(const std::string& node, uint64_t incarnation = 1,
                   uint64_t memory = 100 * kMiB) {
    std::erase_if(nodes, [&](const NodeFacts& facts) { return facts.node == node; });
    nodes.push_back({node, Incarnation{incarnation}, memory, 0, false});
    std::sort(nodes.begin(), nodes.end(),
              [](const NodeFacts& a, const NodeFacts& b) { return a.node < b.node; });
    return text(replica.on_nodes(nodes, node + " joined", now));
  }
  std::string lose(const std::string& node, const std::string& why = "connection reset") {
    std::erase_if(nodes, [&](const NodeFacts& facts) { return facts.node == node; });
    return text(replica.on_nodes(nodes, why, now));
  }
  std::string drain(const std::string& node) {
    for (NodeFacts& facts : nodes) facts.draining = facts.draining || facts.node == node;
    return text(replica.on_nodes(nodes, "drain", now));
  }
  std::string undrain(const std::string& node) {
    for (NodeFacts& facts : nodes) facts.draining = facts.draining && facts.node != node;
    return text(replica.on_nodes(nodes, "undrain", now));
  }
  // What it does, or "refused (code: message)".
  std::string move(uint32_t stage, const std::string& node) {
    const auto actions = replica.on_move(stage, node, now);
    return actions.ok() ? text(actions.value())
                        : fmt::format("refused ({})", to_string(actions.error()));
  }
  std::string ready(uint32_t stage, const std::string& node, uint64_t incarnation,
                    uint64_t node_incarnation = 1) {
    return text(replica.on_stage_ready(stage,
                                       {.node = node,
                                        .node_incarnation = Incarnation{node_incarnation},
                                        .incarnation = Incarnation{incarnation},
                                        .layers = {10 * stage, 10 * stage + 10},
                                        .data_address = {}},
                                       now));
  }
  std::string lost(uint32_t stage, const std::string& node, uint64_t incarnation, bool restarting) {
    return text(replica.on_stage_lost(stage, node, Incarnation{incarnation}, restarting,
                                      "killed by signal 9", now));
  }
  std::string fails_to_load(uint32_t stage, const std::string& node,
                            const Error& why = {ErrorCode::kIo, "disk"}) {
    return text(replica.on_assign_failed(attempts_told[{stage, node}], why, now));
  }
  std::string committed(uint64_t number) {
    return text(replica.on_committed(ViewNumber{number}, now));
  }
  std::string conflict(uint64_t newest) {
    return text(replica.on_conflict(ViewNumber{newest}, now));
  }
  std::string installed(uint64_t number, std::vector<uint32_t> stages = {0, 1, 2}) {
    std::string all;
    for (const uint32_t stage : stages)
      all += text(replica.on_installed(stage, ViewNumber{number}, now));
    return all;
  }
  std::string after(Duration duration) {
    now += duration;
    return text(replica.on_tick(now));
  }
  std::string last_event() const { return replica.history().back().text; }

  // Three nodes a, b, c serve as view 1 with stage incarnations 10, 11, 12.
  void serve() {
    join("a");
    join("b");
    join("c");
    ready(0, "a", 10);
    ready(1, "b", 11);
    ready(2, "c", 12);
    committed(1);
    BOOST_TEST_REQUIRE(installed(1) == "serve 1: a.10 b.11 c.12");
  }
};

}  // namespace troupe::test

#include "actors/logic/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <tuple>

#include "base/check.h"

namespace troupe {
namespace {

Error refuse(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

// 9.1 GiB, 512.0 MiB, 100 B: for people.
std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024; value /= 1024) ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

// Figures come from files and from peers: sums stop at the largest number instead of wrapping round
// to a small one.
uint64_t add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}
uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

Result<std::vector<LayerRange>> honour_split(const PlacementRequest& request) {
  const std::vector<uint32_t>& split = request.layer_split;
  if (split.size() != request.stages)
    return refuse(fmt::format("layer_split names {} stages, the deployment has {}", split.size(),
                              request.stages));
  if (split.front() != 0)
    return refuse(fmt::format("layer_split starts at layer {}, it must start at 0", split.front()));
  std::vector<LayerRange> ranges;
  for (size_t stage = 0; stage < split.size(); ++stage) {
    const uint32_t last = stage + 1 < split.size() ? split[stage + 1] : request.layers;
    if (split[stage] >= last)
      return refuse(
          fmt::format("layer_split gives stage {} the layers from {} up to but without {}, "
                      "each stage needs one at least and the model has {} layers",
                      stage, split[stage], last, request.layers));
    ranges.push_back({split[stage], last});
  }
  return ranges;
}

// All layers cost the same, so handing them out one by one to the stage that is cheapest so far
// makes the costliest stage as cheap as it can be.
std::vector<LayerRange> even_split(const PlacementRequest& request) {
  const bool timed = request.layer_cost != 0;
  const uint64_t layer = timed ? request.layer_cost : std::max<uint64_t>(1, request.layer_bytes);
  std::vector<uint64_t> cost(request.stages, layer);
  std::vector<uint32_t> count(request.stages, 1);
  cost.front() = add(cost.front(), timed ? request.embedding_cost : request.embedding_bytes);
  cost.back() = add(cost.back(), timed ? request.head_cost : request.head_bytes);
  for (uint32_t left = request.layers - request.stages; left > 0; --left) {
    const auto cheapest =
        static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
    cost[cheapest] = add(cost[cheapest], layer);
    ++count[cheapest];
  }
  std::vector<LayerRange> ranges;
  uint32_t first = 0;
  for (const uint32_t layers : count) {
    ranges.push_back({first, first + layers});
    first += layers;
  }
  return ranges;
}

// Tries the nodes in order of preference and steps back where a choice leaves no room for the rest.
class Seating {
 public:
  Seating(const PlacementRequest& request, const std::vector<LayerRange>& layers)
      : request_(request), where_(request.stages) {
    for (uint32_t stage = 0; stage < request.stages; ++stage)
      bytes_.push_back(stage_bytes(request, stage, layers[stage]));
    for (const NodeFacts& node : request.nodes) room_.push_back({node.memory_free, 0});
  }

  Result<void> seat_all() {
    for (const Placement& kept : request_.kept) keep(kept);
    for (uint32_t stage = 0; stage < request_.stages; ++stage)
      if (!where_[stage]) open_.push_back(stage);
    // The first stage chooses first because it is bound to a node, then the largest: they are the
    // hardest to seat.
    const auto before = [&](uint32_t a, uint32_t b) {
      return std::tuple(a != 0, bytes_[b], a) < std::tuple(b != 0, bytes_[a], b);
    };
    std::sort(open_.begin(), open_.end(), before);
    if (!seat_from(0)) return no_room();
    return {};
  }

  // Only this stage, only there, beside the survivors.
  Result<void> seat_one(uint32_t stage, const NodeId& node) {
    for (const Placement& kept : request_.kept)
      if (kept.stage != stage) keep(kept);
    const auto found = std::find_if(request_.nodes.begin(), request_.nodes.end(),
                                    [&](const NodeFacts& facts) { return facts.node == node; });
    if (found == request_.nodes.end())
      return Error{ErrorCode::kNotFound, fmt::format("no node {}", node)};
    const auto index = static_cast<size_t>(found - request_.nodes.begin());
    if (found->stages_max != 0 && room_[index].stages >= found->stages_max)
      return Error{ErrorCode::kResourceExhausted,
                   fmt::format("{} has no room: it holds {} of at most {} stages", node,
                               room_[index].stages, found->stages_max)};
    if (!has_room(index, stage))
      return Error{ErrorCode::kResourceExhausted,
                   fmt::format("{} has no room: stage {} needs {}, {} are free there", node, stage,
                               human_bytes(bytes_[stage]), human_bytes(room_[index].memory))};
    return {};
  }

  const NodeId& node_of(uint32_t stage) const { return request_.nodes[*where_[stage]].node; }

 private:
  struct Room {
    uint64_t memory = 0;
    uint32_t stages = 0;
  };
  static constexpr uint32_t kTriesMax = 20'000;  // then no seating is taken to exist

  // A survivor has its memory already, whatever the node says is free.
  void keep(const Placement& kept) {
    TROUPE_CHECK(kept.stage < request_.stages, "survivors are stages of this replica");
    for (size_t node = 0; node < request_.nodes.size(); ++node) {
      if (request_.nodes[node].node != kept.node || where_[kept.stage]) continue;
      where_[kept.stage] = node;
      room_[node].memory -= std::min(room_[node].memory, bytes_[kept.stage]);
      ++room_[node].stages;
    }
  }

  static bool named(const std::vector<Aversion>& aversions, uint32_t stage, const NodeId& node) {
    return std::any_of(aversions.begin(), aversions.end(), [&](const Aversion& aversion) {
      return aversion.stage == stage && aversion.node == node;
    });
  }

  bool open_to(size_t node, uint32_t stage) const {
    const NodeFacts& facts = request_.nodes[node];
    return !facts.draining && !named(request_.barred, stage, facts.node);
  }

  bool has_room(size_t node, uint32_t stage) const {
    const uint32_t limit = request_.nodes[node].stages_max;
    return room_[node].memory >= bytes_[stage] && (limit == 0 || room_[node].stages < limit);
  }

  // Three digits of binary precision: free memory is measured at different moments, and nodes that
  // differ by less are alike, so that equal nodes take their stages in the order of their names.
  static uint64_t coarse(uint64_t bytes) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(bytes)) - 4);
    return bytes >> shift << shift;
  }

  // Nodes that can take the stage, best first.
  std::vector<size_t> choices(uint32_t stage) const {
    std::vector<size_t> nodes;
    for (size_t node = 0; node < request_.nodes.size(); ++node)
      if (open_to(node, stage) && has_room(node, stage)) nodes.push_back(node);
    const auto rank = [&](size_t node) {
      const bool avoided = named(request_.avoided, stage, request_.nodes[node].node);
      const bool is_home = stage == 0 && node == 0;
      // Least is best; for memory that is what is taken off the largest number.
      return std::tuple(avoided, !is_home, room_[node].stages,
                        std::numeric_limits<uint64_t>::max() - coarse(room_[node].memory), node);
    };
    std::sort(nodes.begin(), nodes.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
    return nodes;
  }

  bool seat_from(size_t index) {
    if (index == open_.size()) return true;
    const uint32_t stage = open_[index];
    for (const size_t node : choices(stage)) {
      if (++tries_ > kTriesMax) return false;
      where_[stage] = node;
      room_[node].memory -= bytes_[stage];
      ++room_[node].stages;
      if (seat_from(index + 1)) return true;
      where_[stage].reset();
      room_[node].memory += bytes_[stage];
      --room_[node].stages;
    }
    return false;
  }

  // Figures of what was tried: `room_` is back at what the survivors left.
  Error no_room() const {
    uint64_t needed = 0, free = 0;
    for (const uint32_t stage : open_) needed = add(needed, bytes_[stage]);
    size_t usable = 0, draining = 0, full = 0;
    for (size_t node = 0; node < room_.size(); ++node) {
      const NodeFacts& facts = request_.nodes[node];
      if (facts.draining) {
        ++draining;
      } else if (facts.stages_max != 0 && room_[node].stages >= facts.stages_max) {
        ++full;
      } else {
        ++usable;
        free = add(free, room_[node].memory);
      }
    }
    std::string message = fmt::format("needs {} for {} {}, {} free on {} {}", human_bytes(needed),
                                      open_.size(), open_.size() == 1 ? "stage" : "stages",
                                      human_bytes(free), usable, usable == 1 ? "node" : "nodes");
    if (needed <= free)
      message += fmt::format("; the largest stage needs {}", human_bytes(largest()));
    if (full > 0) message += fmt::format("; {} at their limit of stages", full);
    if (draining > 0) message += fmt::format("; {} draining", draining);
    size_t barred = 0;
    for (const NodeFacts& facts : request_.nodes)
      barred += std::any_of(open_.begin(), open_.end(), [&](uint32_t stage) {
        return named(request_.barred, stage, facts.node);
      });
    if (barred > 0) message += fmt::format("; {} refused a stage", barred);
    return Error{ErrorCode::kResourceExhausted, message};
  }

  uint64_t largest() const {
    uint64_t most = 0;
    for (const uint32_t stage : open_) most = std::max(most, bytes_[stage]);
    return most;
  }

  const PlacementRequest& request_;
  std::vector<uint64_t> bytes_;               // [stage]
  std::vector<std::optional<size_t>> where_;  // [stage]: index of a node
  std::vector<Room> room_;                    // [node]
  std::vector<uint32_t> open_;                // stages to seat, in the order they choose
  uint32_t tries_ = 0;
};

}  // namespace

Result<std::vector<LayerRange>> split_layers(const PlacementRequest& request) {
  if (request.stages == 0 || request.stages > request.layers)
    return refuse(fmt::format("{} stages for a model of {} layers, allowed are 1 to {}",
                              request.stages, request.layers, request.layers));
  if (!request.layer_split.empty()) return honour_split(request);
  return even_split(request);
}

uint64_t stage_bytes(const PlacementRequest& request, uint32_t stage, const LayerRange& layers) {
  const bool last = stage + 1 == request.stages;
  uint64_t bytes = times(layers.count(), request.layer_bytes);
  if (stage == 0) bytes = add(bytes, request.embedding_bytes);
  return add(bytes, last ? request.head_bytes : request.journal_bytes);
}

Result<std::vector<Placement>> place(const PlacementRequest& request) {
  TROUPE_TRY(const std::vector<LayerRange> layers, split_layers(request));
  Seating seating(request, layers);
  TROUPE_TRY_VOID(seating.seat_all());
  std::vector<Placement> placements;
  for (uint32_t stage = 0; stage < request.stages; ++stage)
    placements.push_back({stage, seating.node_of(stage), layers[stage]});
  return placements;
}

Result<Placement> place_on(const PlacementRequest& request, uint32_t stage, const NodeId& node) {
  TROUPE_TRY(const std::vector<LayerRange> layers, split_layers(request));
  if (stage >= layers.size())
    return refuse(fmt::format("no stage {}, there are {}", stage, layers.size()));
  TROUPE_TRY_VOID(Seating(request, layers).seat_one(stage, node));
  return Placement{stage, node, layers[stage]};
}

}  // namespace troupe

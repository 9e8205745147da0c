// Which node holds which layers. First the layers are cut into stages of equal cost, then the
// stages are given to nodes: survivors stay where they are, the first stage goes to the first node
// (where the batcher is) if it can, and the others are spread, one a node before two a node, the
// roomiest node first. All by counting: the same facts give the same placement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/view.h"

namespace troupe {

struct NodeFacts {
  NodeId node;
  Incarnation incarnation;
  uint64_t memory_free = 0;  // bytes it offers to stages, before this replica's own
  uint32_t stages_max = 0;   // 0: no limit
  bool draining = false;     // takes nothing new
};

struct Placement {
  uint32_t stage = 0;
  NodeId node;
  LayerRange layers;
  friend bool operator==(const Placement&, const Placement&) = default;
};

// A node a stage should not go to.
struct Aversion {
  uint32_t stage = 0;
  NodeId node;
};

struct PlacementRequest {
  uint32_t layers = 0;           // of the model
  uint64_t layer_bytes = 0;      // memory of one layer: weights and KV
  uint64_t embedding_bytes = 0;  // extra in the first stage
  uint64_t head_bytes = 0;       // extra in the last stage
  uint64_t journal_bytes = 0;    // extra in all stages but the last
  // Time of one step, in any unit; layer_cost 0: memory stands for time.
  uint64_t layer_cost = 0, embedding_cost = 0, head_cost = 0;
  uint32_t stages = 1;  // 1 to layers
  std::vector<uint32_t>
      layer_split;               // first layer of each stage, ascending from 0; empty: equal cost
  std::vector<NodeFacts> nodes;  // the first is preferred for stage 0
  std::vector<Placement> kept;   // survivors: stage and node are honoured, layers are not looked at
  std::vector<Aversion> barred;  // never: the node said it cannot
  std::vector<Aversion> avoided;  // only if there is no other way: it failed there
};

// The layers of each stage. Errors: kInvalidArgument (a split that does not fit the model, with the
// figures).
Result<std::vector<LayerRange>> split_layers(const PlacementRequest& request);

// Memory that a stage takes on its node.
uint64_t stage_bytes(const PlacementRequest& request, uint32_t stage, const LayerRange& layers);

// Where each stage goes, in order of stages. Errors: kInvalidArgument as above, kResourceExhausted
// with figures when it does not fit ("needs 9.1 GiB for 3 stages, 7.9 GiB are free on 3 nodes").
Result<std::vector<Placement>> place(const PlacementRequest& request);

// This stage on this node, beside what is kept there; whether the node is draining or barred is not
// looked at. Errors: kInvalidArgument as above, kNotFound (the request has no such node),
// kResourceExhausted with figures when the node has no room for it.
Result<Placement> place_on(const PlacementRequest& request, uint32_t stage, const NodeId& node);

}  // namespace troupe

#include "actors/replica_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/model_registry.h"
#include "kernels/ops.h"
#include "models/weights.h"

namespace troupe {
namespace {

// A layer costs more time than its products: attention grows with the context and runs at about a
// quarter of a product's speed (bench_kernels). Counted at a typical context, so that the
// vocabulary's head, which is products alone, does not look dearer against layers than it is.
constexpr uint64_t kTypicalContext = 256, kAttentionSlowness = 4;

struct Sizes {
  uint64_t bytes = 0;
  uint64_t elements = 0;  // multiplications a token: stands for time
};

Sizes sizes_of(const GgufFile& file, const std::vector<TensorSpec>& specs) {
  Sizes sizes;
  for (const TensorSpec& spec : specs) {
    const auto tensor = find_tensor(file, spec);
    if (tensor.ok()) sizes.bytes += tensor.value()->bytes.size();
    sizes.elements += spec.rows * spec.columns;
  }
  return sizes;
}

}  // namespace

Result<ReplicaSpec> replica_spec(const DeploymentOptions& deployment, const LoadedModel& model) {
  const ModelConfig& config = model.config;
  if (deployment.stages < 1 || deployment.stages > config.layers)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} stages for a model of {} layers, allowed are 1 to {}",
                             deployment.stages, config.layers, config.layers)};
  const Sizes layer = sizes_of(model.file, tensor_specs(config, {0, 1}, false, false));
  const Sizes embedding = sizes_of(model.file, tensor_specs(config, {0, 0}, true, false));
  Sizes head = sizes_of(model.file, tensor_specs(config, {0, 0}, false, true));
  if (config.tied_head) {
    head.bytes = embedding.bytes;
    head.elements = uint64_t{config.vocabulary} * config.hidden;
  }
  // Keys and values in half precision.
  const uint64_t kv_bytes =
      uint64_t{2} * sizeof(uint16_t) * config.kv_columns() * deployment.kv_blocks * kKvBlockTokens;
  ReplicaSpec spec;
  spec.deployment = deployment.name;
  spec.layers = config.layers;
  spec.layer_bytes = layer.bytes + kv_bytes;
  spec.embedding_bytes = embedding.bytes;
  spec.head_bytes = head.bytes;
  // It never keeps more rows than there are positions in the KV cache.
  spec.journal_bytes =
      std::min(deployment.journal_bytes,
               uint64_t{deployment.kv_blocks} * kKvBlockTokens * config.hidden * sizeof(float));
  spec.layer_cost =
      layer.elements + uint64_t{2} * config.query_columns() * kTypicalContext * kAttentionSlowness;
  spec.embedding_cost = 0;  // one row is read
  spec.head_cost = head.elements;
  spec.stages = deployment.stages;
  spec.layer_split = deployment.layer_split;
  spec.nodes_expected = deployment.nodes_expected;
  // A split that does not fit this model would never place: refuse it now, with the figures.
  PlacementRequest cut;
  cut.layers = spec.layers;
  cut.layer_bytes = spec.layer_bytes;
  cut.layer_cost = spec.layer_cost;
  cut.head_cost = spec.head_cost;
  cut.stages = spec.stages;
  cut.layer_split = spec.layer_split;
  const auto split = split_layers(cut);
  if (!split.ok()) return split.error();
  return spec;
}

}  // namespace troupe

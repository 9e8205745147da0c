#include "models/weights.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "models/architectures/decoder.h"
#include "models/finite_weights.h"

namespace troupe {

namespace {

class Loader {
 public:
  Loader(const GgufFile& file, const ModelConfig& config, Operators& operators)
      : file_(file), config_(config), operators_(operators) {}

  Result<StageWeights> load(const StagePart& part);

 private:
  Result<LayerWeights> load_layer(uint32_t layer);
  Result<std::vector<float>> vector(const std::string& name, uint64_t length);
  Result<std::unique_ptr<Weights>> matrix(const std::string& name, uint64_t rows, uint64_t columns);

  const GgufFile& file_;
  const ModelConfig& config_;
  Operators& operators_;
  uint64_t bytes_ = 0;
};

Result<StageWeights> Loader::load(const StagePart& part) {
  StageWeights weights;
  const bool tied = config_.tied_head;
  if (part.first || (part.last && tied)) {
    TROUPE_TRY(auto table, matrix(decoder::kTokenEmbedding, config_.vocabulary, config_.hidden));
    const std::shared_ptr<const Weights> shared = std::move(table);
    if (part.first) weights.embedding = shared;
    if (part.last && tied) weights.head = shared;
  }
  weights.layers.reserve(part.layers.count());
  for (uint32_t layer = part.layers.first; layer < part.layers.last; ++layer) {
    TROUPE_TRY(LayerWeights loaded, load_layer(layer));
    weights.layers.push_back(std::move(loaded));
  }
  if (part.last) {
    TROUPE_TRY(weights.output_norm, vector(decoder::kOutputNorm, config_.hidden));
    if (!tied) {
      TROUPE_TRY(weights.head, matrix(decoder::kOutput, config_.vocabulary, config_.hidden));
    }
  }
  weights.bytes = bytes_;
  return weights;
}

Result<LayerWeights> Loader::load_layer(uint32_t layer) {
  const auto name = [&](const char* part) { return decoder::layer_tensor(layer, part); };
  const uint64_t hidden = config_.hidden, wide = config_.ffn;
  const uint64_t queries = config_.query_columns(), keys = config_.kv_columns();
  LayerWeights w;
  TROUPE_TRY(w.attention_norm, vector(name(decoder::kAttentionNorm), hidden));
  TROUPE_TRY(w.query, matrix(name(decoder::kQuery), queries, hidden));
  TROUPE_TRY(w.key, matrix(name(decoder::kKey), keys, hidden));
  TROUPE_TRY(w.value, matrix(name(decoder::kValue), keys, hidden));
  if (config_.qkv_bias) {
    const auto bias = [&](const char* part) { return decoder::layer_bias(layer, part); };
    TROUPE_TRY(w.query_bias, vector(bias(decoder::kQuery), queries));
    TROUPE_TRY(w.key_bias, vector(bias(decoder::kKey), keys));
    TROUPE_TRY(w.value_bias, vector(bias(decoder::kValue), keys));
  }
  if (config_.qk_norm) {
    TROUPE_TRY(w.query_norm, vector(name(decoder::kQueryNorm), config_.head_dim));
    TROUPE_TRY(w.key_norm, vector(name(decoder::kKeyNorm), config_.head_dim));
  }
  TROUPE_TRY(w.attention_output, matrix(name(decoder::kAttentionOutput), hidden, queries));
  TROUPE_TRY(w.feed_forward_norm, vector(name(decoder::kFfnNorm), hidden));
  TROUPE_TRY(w.gate, matrix(name(decoder::kFfnGate), wide, hidden));
  TROUPE_TRY(w.up, matrix(name(decoder::kFfnUp), wide, hidden));
  TROUPE_TRY(w.down, matrix(name(decoder::kFfnDown), hidden, wide));
  return w;
}

Result<std::vector<float>> Loader::vector(const std::string& name, uint64_t length) {
  TROUPE_TRY(const GgufTensor* found, find_tensor(file_, {name, 1, 1, length}));
  const WeightSource source{DataType::kF32, 1, static_cast<size_t>(length), found->bytes};
  if (const auto finite = check_finite_weights(source); !finite.ok())
    return with_context(finite.error(), fmt::format("tensor '{}'", name));
  std::vector<float> values(length);
  std::memcpy(values.data(), found->bytes.data(), length * sizeof(float));
  bytes_ += length * sizeof(float);
  file_.dont_need(*found);
  return values;
}

Result<std::unique_ptr<Weights>> Loader::matrix(const std::string& name, uint64_t rows,
                                                uint64_t columns) {
  TROUPE_TRY(const GgufTensor* found, find_tensor(file_, {name, 2, rows, columns}));
  TROUPE_TRY(const WeightSource source, found->weight_source());
  if (const auto finite = check_finite_weights(source); !finite.ok())
    return with_context(finite.error(), fmt::format("tensor '{}'", name));
  auto packed = operators_.pack(source);
  if (!packed.ok()) return with_context(packed.error(), fmt::format("tensor '{}'", name));
  bytes_ += packed.value()->memory_bytes();
  file_.dont_need(*found);
  return packed;
}

}  // namespace

Result<StageWeights> load_stage_weights(const GgufFile& file, const ModelConfig& config,
                                        const StagePart& part, Operators& operators) {
  const LayerRange& layers = part.layers;
  if (layers.first >= layers.last || layers.last > config.layers)
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("layers [{}, {}) of a model with {} layers; a stage holds at least one",
                    layers.first, layers.last, config.layers)};
  return Loader(file, config, operators).load(part);
}

}  // namespace troupe

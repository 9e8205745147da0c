#include "models/architectures/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe::llama {

namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidFile, std::move(message)};
}

constexpr std::string_view kPrefix = "llama.";

// Keys that are read below, and keys that do not change what is computed.
constexpr std::array<std::string_view, 21> kKnownKeys = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.causal",
    "rope.freq_base",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    "expert_count",
    "expert_used_count",
    "vocab_size",
    "tensor_data_layout",
};

std::string key(std::string_view name) {
  return std::string(kPrefix).append(name);
}

// A count that may be absent.
Result<uint32_t> count_or(const GgufFile& file, std::string_view name, uint32_t otherwise,
                          uint32_t min, uint32_t max) {
  if (!file.has(key(name))) return otherwise;
  return read_count(file, key(name), min, max);
}

// Whatever the file says about scaling must amount to none.
Result<void> refuse_rope_scaling(const GgufFile& file) {
  bool linear_factor_counts = true;
  if (file.has(key("rope.scaling.type"))) {
    TROUPE_TRY(const std::string_view type, file.text(key("rope.scaling.type")));
    if (type != "none" && type != "linear")
      return invalid(fmt::format("rope scaling '{}' is not supported, only none", printable(type)));
    linear_factor_counts = type == "linear";
  }
  for (const char* name : {"rope.scaling.factor", "rope.scale_linear"}) {
    if (!file.has(key(name))) continue;
    TROUPE_TRY(const float factor, read_finite(file, key(name)));
    // Exactly 1 (or 0, which writers use for "unset") changes nothing; all else does.
    if (linear_factor_counts && factor != 1.0F && factor != 0.0F)
      return invalid(fmt::format("rope scaling by {} is not supported, only none", factor));
  }
  if (file.find("rope_freqs.weight") != nullptr)
    return invalid("rope scaling factors (tensor 'rope_freqs.weight') are not supported");
  return {};
}

Result<void> refuse_unsupported(const GgufFile& file) {
  TROUPE_TRY(const uint32_t experts, count_or(file, "expert_count", 0, 0, UINT32_MAX));
  if (experts != 0)
    return invalid(fmt::format("{} experts, only dense models are supported", experts));
  if (file.has(key("attention.causal"))) {
    TROUPE_TRY(const bool causal, file.boolean(key("attention.causal")));
    if (!causal) return invalid("attention is not causal, which is not supported");
  }
  TROUPE_TRY_VOID(refuse_rope_scaling(file));
  for (const GgufEntry& entry : file.entries()) {
    if (!entry.key.starts_with(kPrefix)) continue;
    const std::string_view name = entry.key.substr(kPrefix.size());
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), name) == kKnownKeys.end())
      return invalid(
          fmt::format("metadata '{}' is not known to this version, so the model could not "
                      "be run exactly",
                      printable(entry.key)));
  }
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name.ends_with(".bias"))
      return invalid(fmt::format("biases are not supported (tensor '{}')", tensor.name));
  return {};
}

Result<void> read_heads(const GgufFile& file, ModelConfig& config) {
  TROUPE_TRY(config.heads, read_count(file, key("attention.head_count"), 1, kModelWidthMax));
  TROUPE_TRY(config.kv_heads,
             count_or(file, "attention.head_count_kv", config.heads, 1, config.heads));
  if (config.heads % config.kv_heads != 0)
    return invalid(
        fmt::format("{} heads are no multiple of {} KV heads", config.heads, config.kv_heads));
  if (file.has(key("attention.key_length"))) {
    TROUPE_TRY(config.head_dim, read_count(file, key("attention.key_length"), 2, kModelHeadDimMax));
  } else {
    if (config.hidden % config.heads != 0)
      return invalid(fmt::format("embedding length {} is no multiple of {} heads", config.hidden,
                                 config.heads));
    config.head_dim = config.hidden / config.heads;
  }
  TROUPE_TRY(const uint32_t value_dim,
             count_or(file, "attention.value_length", config.head_dim, 1, kModelHeadDimMax));
  if (value_dim != config.head_dim)
    return invalid(
        fmt::format("keys of {} and values of {} elements a head, supported is one length",
                    config.head_dim, value_dim));
  if (config.head_dim < 2 || config.head_dim > kModelHeadDimMax || config.head_dim % 2 != 0)
    return invalid(fmt::format("{} elements a head, allowed are even numbers from 2 to {}",
                               config.head_dim, kModelHeadDimMax));
  if (uint64_t{config.heads} * config.head_dim > kModelWidthMax)
    return invalid(fmt::format("{} heads of {} elements, limit {} elements", config.heads,
                               config.head_dim, kModelWidthMax));
  return {};
}

Result<void> read_rope(const GgufFile& file, ModelConfig& config) {
  constexpr float kRopeBaseMax = 1e12F;
  config.rope_base = 10'000.0F;  // the architecture's default
  if (file.has(key("rope.freq_base"))) {
    TROUPE_TRY(config.rope_base, read_finite(file, key("rope.freq_base")));
    if (config.rope_base < 1.0F || config.rope_base > kRopeBaseMax)
      return invalid(fmt::format("llama.rope.freq_base is {}, allowed are 1 to {}",
                                 config.rope_base, kRopeBaseMax));
  }
  TROUPE_TRY(config.rotary_dims,
             count_or(file, "rope.dimension_count", config.head_dim, 2, config.head_dim));
  if (config.rotary_dims % 2 != 0)
    return invalid(
        fmt::format("llama.rope.dimension_count is {}, needed an even number", config.rotary_dims));
  return {};
}

}  // namespace

std::string layer_tensor(uint32_t layer, const char* part) {
  return fmt::format("blk.{}.{}.weight", layer, part);
}

std::vector<TensorSpec> layer_specs(const ModelConfig& config, uint32_t layer) {
  const uint64_t hidden = config.hidden, ffn = config.ffn;
  return {
      {layer_tensor(layer, kAttentionNorm), 1, 1, hidden},
      {layer_tensor(layer, kQuery), 2, config.query_columns(), hidden},
      {layer_tensor(layer, kKey), 2, config.kv_columns(), hidden},
      {layer_tensor(layer, kValue), 2, config.kv_columns(), hidden},
      {layer_tensor(layer, kAttentionOutput), 2, hidden, config.query_columns()},
      {layer_tensor(layer, kFfnNorm), 1, 1, hidden},
      {layer_tensor(layer, kFfnGate), 2, ffn, hidden},
      {layer_tensor(layer, kFfnUp), 2, ffn, hidden},
      {layer_tensor(layer, kFfnDown), 2, hidden, ffn},
  };
}

Result<ModelConfig> read_config(const GgufFile& file) {
  constexpr float kEpsilonMax = 0.1F;
  ModelConfig config;
  config.architecture = "llama";
  if (file.has("general.name")) {
    TROUPE_TRY(const std::string_view name, file.text("general.name"));
    config.name = name.substr(0, 256);
  }
  TROUPE_TRY_VOID(refuse_unsupported(file));
  TROUPE_TRY(config.layers, read_count(file, key("block_count"), 1, kModelLayersMax));
  TROUPE_TRY(config.hidden, read_count(file, key("embedding_length"), 1, kModelWidthMax));
  TROUPE_TRY(config.ffn, read_count(file, key("feed_forward_length"), 1, kModelWidthMax));
  TROUPE_TRY(config.context_max, read_count(file, key("context_length"), 1, kModelContextMax));
  TROUPE_TRY_VOID(read_heads(file, config));
  TROUPE_TRY_VOID(read_rope(file, config));
  const std::string epsilon_key = key("attention.layer_norm_rms_epsilon");
  TROUPE_TRY(config.rms_epsilon, read_finite(file, epsilon_key));
  if (config.rms_epsilon <= 0.0F || config.rms_epsilon > kEpsilonMax)
    return invalid(fmt::format("{} is {}, allowed are numbers above 0 up to {}", epsilon_key,
                               config.rms_epsilon, kEpsilonMax));
  const GgufTensor* embedding = file.find(kTokenEmbedding);
  if (embedding == nullptr) return invalid(fmt::format("tensor '{}' is missing", kTokenEmbedding));
  if (embedding->rows() > kModelVocabularyMax)
    return invalid(
        fmt::format("vocabulary of {} tokens, limit {}", embedding->rows(), kModelVocabularyMax));
  config.vocabulary = static_cast<uint32_t>(embedding->rows());
  config.tied_head = file.find(kOutput) == nullptr;
  return config;
}

}  // namespace troupe::llama

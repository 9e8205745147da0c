#include "models/architectures/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe::decoder {

namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidFile, std::move(message)};
}

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

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, const Traits& traits) : file_(file), traits_(traits) {}
  Result<ModelConfig> read();

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", traits_.name, name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }
  Result<uint32_t> count(std::string_view name, uint32_t min, uint32_t max) const {
    return read_count(file_, key(name), min, max);
  }
  // One that may be absent.
  Result<uint32_t> count_or(std::string_view name, uint32_t otherwise, uint32_t min,
                            uint32_t max) const {
    if (!has(name)) return otherwise;
    return count(name, min, max);
  }
  Result<float> finite(std::string_view name) const { return read_finite(file_, key(name)); }

  Result<void> refuse_rope_scaling() const;
  Result<void> refuse_unsupported() const;
  Result<void> read_heads(ModelConfig& config) const;
  Result<void> read_rope(ModelConfig& config) const;
  Result<void> read_vocabulary(ModelConfig& config) const;

  const GgufFile& file_;
  const Traits& traits_;
};

// Whatever the file says about scaling must amount to none.
Result<void> ConfigReader::refuse_rope_scaling() const {
  bool linear_factor_counts = true;
  if (has("rope.scaling.type")) {
    TROUPE_TRY(const std::string_view type, file_.text(key("rope.scaling.type")));
    if (type != "none" && type != "linear")
      return invalid(fmt::format("rope scaling '{}' is not supported, only none", printable(type)));
    linear_factor_counts = type == "linear";
  }
  for (const char* name : {"rope.scaling.factor", "rope.scale_linear"}) {
    if (!has(name)) continue;
    TROUPE_TRY(const float factor, finite(name));
    // Exactly 1 (or 0, which writers use for "unset") changes nothing; all else does.
    if (linear_factor_counts && factor != 1.0F && factor != 0.0F)
      return invalid(fmt::format("rope scaling by {} is not supported, only none", factor));
  }
  if (file_.find("rope_freqs.weight") != nullptr)
    return invalid("rope scaling factors (tensor 'rope_freqs.weight') are not supported");
  return {};
}

Result<void> ConfigReader::refuse_unsupported() const {
  TROUPE_TRY(const uint32_t experts, count_or("expert_count", 0, 0, UINT32_MAX));
  if (experts != 0)
    return invalid(fmt::format("{} experts, only dense models are supported", experts));
  if (has("attention.causal")) {
    TROUPE_TRY(const bool causal, file_.boolean(key("attention.causal")));
    if (!causal) return invalid("attention is not causal, which is not supported");
  }
  TROUPE_TRY_VOID(refuse_rope_scaling());
  const std::string prefix = key("");
  for (const GgufEntry& entry : file_.entries()) {
    if (!entry.key.starts_with(prefix)) continue;
    const std::string_view name = entry.key.substr(prefix.size());
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), name) == kKnownKeys.end())
      return invalid(
          fmt::format("metadata '{}' is not known to this version, so the model could not "
                      "be run exactly",
                      printable(entry.key)));
  }
  for (const GgufTensor& tensor : file_.tensors())
    if (tensor.name.ends_with(".bias") && !traits_.qkv_bias)
      return invalid(fmt::format("biases are not supported (tensor '{}')", tensor.name));
  return {};
}

Result<void> ConfigReader::read_heads(ModelConfig& config) const {
  TROUPE_TRY(config.heads, count("attention.head_count", 1, kModelWidthMax));
  TROUPE_TRY(config.kv_heads, count_or("attention.head_count_kv", config.heads, 1, config.heads));
  if (config.heads % config.kv_heads != 0)
    return invalid(
        fmt::format("{} heads are no multiple of {} KV heads", config.heads, config.kv_heads));
  if (has("attention.key_length")) {
    TROUPE_TRY(config.head_dim, count("attention.key_length", 2, kModelHeadDimMax));
  } else {
    if (config.hidden % config.heads != 0)
      return invalid(fmt::format("embedding length {} is no multiple of {} heads", config.hidden,
                                 config.heads));
    config.head_dim = config.hidden / config.heads;
  }
  TROUPE_TRY(const uint32_t value_dim,
             count_or("attention.value_length", config.head_dim, 1, kModelHeadDimMax));
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

Result<void> ConfigReader::read_rope(ModelConfig& config) const {
  constexpr float kRopeBaseMax = 1e12F;
  config.rope_base = 10'000.0F;  // the architecture's default
  if (has("rope.freq_base")) {
    TROUPE_TRY(config.rope_base, finite("rope.freq_base"));
    if (config.rope_base < 1.0F || config.rope_base > kRopeBaseMax)
      return invalid(fmt::format("{} is {}, allowed are 1 to {}", key("rope.freq_base"),
                                 config.rope_base, kRopeBaseMax));
  }
  TROUPE_TRY(config.rotary_dims,
             count_or("rope.dimension_count", config.head_dim, 2, config.head_dim));
  if (config.rotary_dims % 2 != 0)
    return invalid(fmt::format("{} is {}, needed an even number", key("rope.dimension_count"),
                               config.rotary_dims));
  return {};
}

// The vocabulary is as large as the embedding.
Result<void> ConfigReader::read_vocabulary(ModelConfig& config) const {
  const GgufTensor* embedding = file_.find(kTokenEmbedding);
  if (embedding == nullptr) return invalid(fmt::format("tensor '{}' is missing", kTokenEmbedding));
  if (embedding->rows() > kModelVocabularyMax)
    return invalid(
        fmt::format("vocabulary of {} tokens, limit {}", embedding->rows(), kModelVocabularyMax));
  config.vocabulary = static_cast<uint32_t>(embedding->rows());
  config.tied_head = file_.find(kOutput) == nullptr;
  return {};
}

Result<ModelConfig> ConfigReader::read() {
  constexpr float kEpsilonMax = 0.1F;
  ModelConfig config;
  config.architecture = traits_.name;
  config.rope_pairs = traits_.rope_pairs;
  config.qkv_bias = traits_.qkv_bias;
  config.qk_norm = traits_.qk_norm;
  if (file_.has("general.name")) {
    TROUPE_TRY(const std::string_view name, file_.text("general.name"));
    config.name = name.substr(0, 256);
  }
  TROUPE_TRY_VOID(refuse_unsupported());
  TROUPE_TRY(config.layers, count("block_count", 1, kModelLayersMax));
  TROUPE_TRY(config.hidden, count("embedding_length", 1, kModelWidthMax));
  TROUPE_TRY(config.ffn, count("feed_forward_length", 1, kModelWidthMax));
  TROUPE_TRY(config.context_max, count("context_length", 1, kModelContextMax));
  TROUPE_TRY_VOID(read_heads(config));
  TROUPE_TRY_VOID(read_rope(config));
  TROUPE_TRY(config.rms_epsilon, finite("attention.layer_norm_rms_epsilon"));
  if (config.rms_epsilon <= 0.0F || config.rms_epsilon > kEpsilonMax)
    return invalid(fmt::format("{} is {}, allowed are numbers above 0 up to {}",
                               key("attention.layer_norm_rms_epsilon"), config.rms_epsilon,
                               kEpsilonMax));
  TROUPE_TRY_VOID(read_vocabulary(config));
  return config;
}

}  // namespace

std::string layer_tensor(uint32_t layer, const char* part) {
  return fmt::format("blk.{}.{}.weight", layer, part);
}

std::string layer_bias(uint32_t layer, const char* part) {
  return fmt::format("blk.{}.{}.bias", layer, part);
}

std::vector<TensorSpec> layer_specs(const ModelConfig& config, uint32_t layer) {
  const uint64_t hidden = config.hidden, ffn = config.ffn;
  const uint64_t queries = config.query_columns(), keys = config.kv_columns();
  std::vector<TensorSpec> specs{
      {layer_tensor(layer, kAttentionNorm), 1, 1, hidden},
      {layer_tensor(layer, kQuery), 2, queries, hidden},
      {layer_tensor(layer, kKey), 2, keys, hidden},
      {layer_tensor(layer, kValue), 2, keys, hidden},
      {layer_tensor(layer, kAttentionOutput), 2, hidden, queries},
      {layer_tensor(layer, kFfnNorm), 1, 1, hidden},
      {layer_tensor(layer, kFfnGate), 2, ffn, hidden},
      {layer_tensor(layer, kFfnUp), 2, ffn, hidden},
      {layer_tensor(layer, kFfnDown), 2, hidden, ffn},
  };
  if (config.qkv_bias) {
    specs.push_back({layer_bias(layer, kQuery), 1, 1, queries});
    specs.push_back({layer_bias(layer, kKey), 1, 1, keys});
    specs.push_back({layer_bias(layer, kValue), 1, 1, keys});
  }
  if (config.qk_norm) {
    specs.push_back({layer_tensor(layer, kQueryNorm), 1, 1, config.head_dim});
    specs.push_back({layer_tensor(layer, kKeyNorm), 1, 1, config.head_dim});
  }
  return specs;
}

Result<ModelConfig> read_config(const GgufFile& file, const Traits& traits) {
  return ConfigReader(file, traits).read();
}

}  // namespace troupe::decoder

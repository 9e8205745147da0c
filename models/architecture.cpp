#include "models/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "models/architectures/decoder.h"

namespace troupe {

namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidFile, std::move(message)};
}

// The vocabulary is told by the token list; the embedding and `<architecture>.vocab_size` must
// agree with it.
Result<void> check_vocabulary(const GgufFile& file, const ModelConfig& config) {
  if (file.has("tokenizer.ggml.tokens")) {
    TROUPE_TRY(const auto tokens, file.texts("tokenizer.ggml.tokens"));
    if (tokens.size() != config.vocabulary)
      return invalid(fmt::format("{} tokens in tokenizer.ggml.tokens, the embedding has {} rows",
                                 tokens.size(), config.vocabulary));
  }
  const std::string size_key = config.architecture + ".vocab_size";
  if (file.has(size_key)) {
    TROUPE_TRY(const uint64_t size, file.unsigned_integer(size_key));
    if (size != config.vocabulary)
      return invalid(
          fmt::format("{} is {}, the embedding has {} rows", size_key, size, config.vocabulary));
  }
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    if (!file.has(key)) continue;
    TROUPE_TRY(const uint64_t token, file.unsigned_integer(key));
    if (token >= config.vocabulary)
      return invalid(
          fmt::format("{} is {}, the vocabulary has {} tokens", key, token, config.vocabulary));
  }
  return {};
}

// All the model needs is there in the right shape, and nothing else: an unknown tensor (a bias,
// rope factors, an adapter) would change what the model computes.
Result<void> check_tensors(const GgufFile& file, const ModelConfig& config) {
  std::unordered_set<std::string_view> known;
  const std::vector<TensorSpec> specs = tensor_specs(config, {0, config.layers}, true, true);
  for (const TensorSpec& spec : specs) {
    TROUPE_TRY([[maybe_unused]] const GgufTensor* found, find_tensor(file, spec));
    known.insert(spec.name);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (known.contains(tensor.name)) continue;
    return invalid(
        fmt::format("tensor '{}' has no place in a {} model of {} layers, so the model could not "
                    "be run exactly",
                    tensor.name, config.architecture, config.layers));
  }
  return {};
}

}  // namespace

Result<uint32_t> read_count(const GgufFile& file, std::string_view key, uint32_t min,
                            uint32_t max) {
  TROUPE_TRY(const uint64_t value, file.unsigned_integer(key));
  if (value < min || value > max)
    return invalid(fmt::format("{} is {}, allowed are {} to {}", key, value, min, max));
  return static_cast<uint32_t>(value);
}

Result<float> read_finite(const GgufFile& file, std::string_view key) {
  TROUPE_TRY(const double value, file.number(key));
  const auto narrow = static_cast<float>(value);
  if (!std::isfinite(narrow))
    return invalid(fmt::format("{} is {}, not a finite number", key, value));
  return narrow;
}

Result<const GgufTensor*> find_tensor(const GgufFile& file, const TensorSpec& spec) {
  const GgufTensor* tensor = file.find(spec.name);
  if (tensor == nullptr) return invalid(fmt::format("tensor '{}' is missing", spec.name));
  if (tensor->rank != spec.rank || tensor->rows() != spec.rows || tensor->columns() != spec.columns)
    return invalid(fmt::format("tensor '{}' is {}x{} (rank {}), needed {}x{} (rank {})", spec.name,
                               tensor->rows(), tensor->columns(), tensor->rank, spec.rows,
                               spec.columns, spec.rank));
  TROUPE_TRY(const DataType type, tensor->data_type());
  if (spec.rank == 1 && type != DataType::kF32)
    return invalid(fmt::format("tensor '{}' is {}, a norm or a bias must be F32", spec.name,
                               ggml_type_name(tensor->type)));
  return tensor;
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config, LayerRange range, bool embedding,
                                     bool head) {
  std::vector<TensorSpec> specs;
  const auto matrix = [&](const char* name) {
    specs.push_back({name, 2, config.vocabulary, config.hidden});
  };
  if (embedding || (head && config.tied_head)) matrix(decoder::kTokenEmbedding);
  for (uint32_t layer = range.first; layer < range.last; ++layer)
    for (TensorSpec& spec : decoder::layer_specs(config, layer)) specs.push_back(std::move(spec));
  if (head) {
    specs.push_back({decoder::kOutputNorm, 1, 1, config.hidden});
    if (!config.tied_head) matrix(decoder::kOutput);
  }
  return specs;
}

Result<ModelConfig> read_model_config(const GgufFile& file) {
  TROUPE_TRY(const std::string_view architecture, file.text("general.architecture"));
  const auto known = decoder::all();
  const auto traits = std::ranges::find(known, architecture, &decoder::Traits::name);
  if (traits == known.end()) {
    std::string names;
    for (const decoder::Traits& one : known)
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", one.name);
    return invalid(
        fmt::format("architecture '{}', supported are {}", printable(architecture), names));
  }
  TROUPE_TRY(ModelConfig config, decoder::read_config(file, *traits));
  TROUPE_TRY_VOID(check_vocabulary(file, config));
  TROUPE_TRY_VOID(check_tensors(file, config));
  return config;
}

}  // namespace troupe

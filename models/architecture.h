// What a model file must say before any of it is run. The configuration is read from a GGUF file
// and checked against the tensors that are there: a model that this code would not run exactly is
// refused with one line, never run approximately.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/view.h"
#include "kernels/ops.h"
#include "models/gguf.h"

namespace troupe {

// Limits on what a file may announce; beyond them is a mistake in the file, not a model.
inline constexpr uint32_t kModelLayersMax = 4096;
inline constexpr uint32_t kModelWidthMax = 1 << 18;  // hidden, ffn, heads * head_dim
inline constexpr uint32_t kModelHeadDimMax = 1024;
inline constexpr uint32_t kModelVocabularyMax = 1 << 22;
inline constexpr uint32_t kModelContextMax = 1 << 24;

struct ModelConfig {
  std::string architecture;  // general.architecture
  std::string name;          // what the file calls itself, for people; may be empty
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // divides heads
  uint32_t head_dim = 0;
  uint32_t ffn = 0;
  uint32_t vocabulary = 0;
  uint32_t context_max = 0;  // positions the model was made for
  float rms_epsilon = 0.0F;
  float rope_base = 0.0F;
  uint32_t rotary_dims = 0;  // of a head, from its start; even, at most head_dim
  RopePairs rope_pairs = RopePairs::kAdjacent;
  bool qkv_bias = false;   // queries, keys and values have biases
  bool qk_norm = false;    // queries and keys are normed, head by head, before they turn
  bool tied_head = false;  // the head is the token embedding

  uint32_t query_columns() const { return heads * head_dim; }
  uint32_t kv_columns() const { return kv_heads * head_dim; }
};

// What a tensor must look like: rows x columns as the kernels see it (rank 1: one row).
struct TensorSpec {
  std::string name;
  uint32_t rank = 2;
  uint64_t rows = 1;
  uint64_t columns = 0;
};

// Errors: kInvalidFile for a file that contradicts itself or holds a model that is not supported.
// On success every tensor of the model is there, with the right shape and a supported type.
Result<ModelConfig> read_model_config(const GgufFile& file);

// Every tensor that layers [range.first, range.last) need; `embedding` adds the token embedding,
// `head` the final norm and the head (which is the token embedding again if the head is tied; it is
// listed once).
std::vector<TensorSpec> tensor_specs(const ModelConfig& config, LayerRange range, bool embedding,
                                     bool head);

// The tensor if it is there, has the shape, and holds a type the kernels know (rank 1: F32 only).
Result<const GgufTensor*> find_tensor(const GgufFile& file, const TensorSpec& spec);

// Helpers for the files in architectures/: an unsigned number in [min, max], and a finite one.
Result<uint32_t> read_count(const GgufFile& file, std::string_view key, uint32_t min, uint32_t max);
Result<float> read_finite(const GgufFile& file, std::string_view key);

}  // namespace troupe

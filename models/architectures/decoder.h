// Dense decoders: what llama and those who followed it share. RMS norm, grouped-query attention
// with rotary positions, SwiGLU. Touvron et al., "LLaMA" (2023); grouped queries as in Llama 2 and
// later.
//
//   x = token_embd[token]
//   each layer:  a = rms_norm(x, attn_norm);  q, k, v = attn_q a, attn_k a, attn_v a (+ biases)
//                q, k = rms_norm of each head (where there is a norm), then rotated
//                x = x + attn_output attention(q, k, v)
//                f = rms_norm(x, ffn_norm);   x = x + ffn_down (silu(ffn_gate f) * ffn_up f)
//   logits = output rms_norm(x, output_norm)        output is token_embd if the file has no
//   output.weight
//
// What an architecture makes of it is a line of traits, in a file of its own.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"

namespace troupe::decoder {

struct Traits {
  std::string_view name;  // general.architecture, and what its keys begin with
  RopePairs rope_pairs = RopePairs::kAdjacent;
  bool qkv_bias = false;  // attn_q.bias, attn_k.bias, attn_v.bias
  bool qk_norm = false;   // attn_q_norm, attn_k_norm: of each head
};

// Every architecture there is.
std::span<const Traits> all();

inline constexpr const char* kTokenEmbedding = "token_embd.weight";  // [vocabulary][hidden]
inline constexpr const char* kOutputNorm = "output_norm.weight";     // [hidden]
inline constexpr const char* kOutput = "output.weight";  // [vocabulary][hidden], optional

// Parts of a layer, for layer_tensor() and, where they have one, layer_bias().
inline constexpr const char* kAttentionNorm = "attn_norm";      // [hidden]
inline constexpr const char* kQuery = "attn_q";                 // [heads * head_dim][hidden]
inline constexpr const char* kKey = "attn_k";                   // [kv_heads * head_dim][hidden]
inline constexpr const char* kValue = "attn_v";                 // [kv_heads * head_dim][hidden]
inline constexpr const char* kQueryNorm = "attn_q_norm";        // [head_dim]
inline constexpr const char* kKeyNorm = "attn_k_norm";          // [head_dim]
inline constexpr const char* kAttentionOutput = "attn_output";  // [hidden][heads * head_dim]
inline constexpr const char* kFfnNorm = "ffn_norm";             // [hidden]
inline constexpr const char* kFfnGate = "ffn_gate";             // [ffn][hidden]
inline constexpr const char* kFfnUp = "ffn_up";                 // [ffn][hidden]
inline constexpr const char* kFfnDown = "ffn_down";             // [hidden][ffn]

// "blk.3.attn_q.weight", "blk.3.attn_q.bias"
std::string layer_tensor(uint32_t layer, const char* part);
std::string layer_bias(uint32_t layer, const char* part);

// All tensors of a layer.
std::vector<TensorSpec> layer_specs(const ModelConfig& config, uint32_t layer);

// Reads the configuration; the tensors are checked by read_model_config.
Result<ModelConfig> read_config(const GgufFile& file, const Traits& traits);

}  // namespace troupe::decoder

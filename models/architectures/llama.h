// The llama architecture, all of it: RMS norm, grouped-query attention with rotary positions on
// adjacent pairs (x[2i], x[2i+1]), SwiGLU, no biases. Touvron et al., "LLaMA" (2023); grouped
// queries as in Llama 2 and later.
//
//   x = token_embd[token]
//   each layer:  a = rms_norm(x, attn_norm);  q, k, v = attn_q a, attn_k a, attn_v a;  q, k rotated
//                x = x + attn_output attention(q, k, v)
//                f = rms_norm(x, ffn_norm);   x = x + ffn_down (silu(ffn_gate f) * ffn_up f)
//   logits = output rms_norm(x, output_norm)        output is token_embd if the file has no
//   output.weight
//
// GGUF files hold attn_q and attn_k with rows permuted so that rotation pairs are adjacent.
#pragma once

#include <string>
#include <vector>

#include "models/architecture.h"

namespace troupe::llama {

inline constexpr const char* kTokenEmbedding = "token_embd.weight";  // [vocabulary][hidden]
inline constexpr const char* kOutputNorm = "output_norm.weight";     // [hidden]
inline constexpr const char* kOutput = "output.weight";  // [vocabulary][hidden], optional

// Parts of a layer, for layer_tensor().
inline constexpr const char* kAttentionNorm = "attn_norm";      // [hidden]
inline constexpr const char* kQuery = "attn_q";                 // [heads * head_dim][hidden]
inline constexpr const char* kKey = "attn_k";                   // [kv_heads * head_dim][hidden]
inline constexpr const char* kValue = "attn_v";                 // [kv_heads * head_dim][hidden]
inline constexpr const char* kAttentionOutput = "attn_output";  // [hidden][heads * head_dim]
inline constexpr const char* kFfnNorm = "ffn_norm";             // [hidden]
inline constexpr const char* kFfnGate = "ffn_gate";             // [ffn][hidden]
inline constexpr const char* kFfnUp = "ffn_up";                 // [ffn][hidden]
inline constexpr const char* kFfnDown = "ffn_down";             // [hidden][ffn]

// "blk.3.attn_q.weight"
std::string layer_tensor(uint32_t layer, const char* part);

// The nine tensors of a layer.
std::vector<TensorSpec> layer_specs(const ModelConfig& config, uint32_t layer);

// Reads the configuration; the tensors are checked by read_model_config.
Result<ModelConfig> read_config(const GgufFile& file);

}  // namespace troupe::llama

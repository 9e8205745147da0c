// llama: Llama 1 and 2, Llama 3 without rope scaling, Mistral, SmolLM and others. Its GGUF files
// hold attn_q and attn_k with rows permuted so that the pairs that turn together are adjacent.
#pragma once

#include "models/architectures/decoder.h"

namespace troupe::decoder {

inline constexpr Traits kLlama{.name = "llama"};

}  // namespace troupe::decoder

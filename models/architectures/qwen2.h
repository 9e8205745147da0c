// qwen2: Qwen 1.5, 2 and 2.5, and what was distilled into them. Biases on queries, keys and values;
// the two halves of a head turn against each other. "Qwen2 Technical Report" (2024), section 2.2.
#pragma once

#include "models/architectures/decoder.h"

namespace troupe::decoder {

inline constexpr Traits kQwen2{.name = "qwen2", .rope_pairs = RopePairs::kHalves, .qkv_bias = true};

}  // namespace troupe::decoder

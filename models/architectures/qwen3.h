// qwen3, dense: no biases any more; queries and keys are normed, head by head, before they turn.
// "Qwen3 Technical Report" (2025), section 2.
#pragma once

#include "models/architectures/decoder.h"

namespace troupe::decoder {

inline constexpr Traits kQwen3{.name = "qwen3", .rope_pairs = RopePairs::kHalves, .qk_norm = true};

}  // namespace troupe::decoder

// Quantisers of the formats that kernels/quant_decode.h reads, for generated models: plain
// rounding, none of the searches that make real files better.
#pragma once

#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace troupe::test {

// `values` are whole blocks of the type.
std::vector<std::byte> quantise_decoded(DataType type, std::span<const float> values);

}  // namespace troupe::test

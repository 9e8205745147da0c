// Weights that are no numbers. One scale that is NaN or infinite makes a row of every later layer
// NaN, silently: the file is damaged, and is refused before it is computed with (numerics.md).
#pragma once

#include "base/result.h"
#include "kernels/tensor.h"

namespace troupe {

// Looks at every scale, minimum and float weight of a matrix whose size has been checked. Reads
// each block once: less work than packing it. Errors: kInvalidFile, with the place of the first.
Result<void> check_finite_weights(const WeightSource& source);

}  // namespace troupe

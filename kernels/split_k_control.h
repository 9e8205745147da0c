// The negative control of the bit comparisons: a deliberately wrong reduction order. Wraps any
// Operators; as soon as a product has more than one row and K of at least 96 it cuts K at a third,
// multiplies the parts apart and adds them, so that the bits of a row depend on the size of its
// batch. Exists so that tests can show that they notice. Never set in production.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace troupe {

std::unique_ptr<Operators> make_split_k_control(std::unique_ptr<Operators> inner);

}  // namespace troupe

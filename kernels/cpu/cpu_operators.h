// The operators on this machine's CPU cores with AVX2, FMA and F16C; bits equal to the reference.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace troupe {

// Whether this CPU (and its operating system) runs AVX2, FMA and F16C.
bool cpu_has_avx2();

// Requires cpu_has_avx2() and 1 <= threads. Errors: kUnavailable (the system gives no more
// threads).
Result<std::unique_ptr<Operators>> make_cpu_operators(size_t threads);

}  // namespace troupe

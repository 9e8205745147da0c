#include "kernels/cpu/cpu_operators.h"

namespace troupe {

bool cpu_has_avx2() { return false; }

Result<std::unique_ptr<Operators>> make_cpu_operators(size_t) {
  return Error{ErrorCode::kUnavailable, "no vector kernels in this build"};
}

}  // namespace troupe

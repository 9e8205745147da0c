// Which CUDA devices this machine has. The first piece of the CUDA backend: operators follow, under
// the rules of docs/numerics.md, and until then every stage computes on the CPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace troupe {

struct CudaDevice {
  int index = 0;  // as CUDA counts, after CUDA_VISIBLE_DEVICES
  std::string name;
  int compute_major = 0, compute_minor = 0;
  uint64_t memory_bytes = 0;       // total
  uint64_t memory_free_bytes = 0;  // now
  int multiprocessors = 0;
};

// In CUDA's order. Errors: kUnavailable with CUDA's own words (no device, no driver, a driver older
// than the runtime).
Result<std::vector<CudaDevice>> cuda_devices();

}  // namespace troupe

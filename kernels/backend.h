// Chooses the implementation of the operators, once, at start.
#pragma once

#include <memory>
#include <string>

#include "kernels/ops.h"

namespace troupe {

enum class KernelChoice : uint8_t {
  kAuto,       // the fastest this CPU has
  kReference,  // the scalar loops that define the bits: slow, for tests and doubts
  kAvx2,       // AVX2, FMA and F16C
};

Result<KernelChoice> parse_kernel_choice(std::string_view text);  // "auto", "reference", "avx2"

struct BackendOptions {
  KernelChoice kernels = KernelChoice::kAuto;
  size_t threads = 1;  // 1 to 256; the calling thread is one of them
};

// Errors: kInvalidArgument (thread count), kUnavailable (the CPU lacks what the choice needs).
Result<std::unique_ptr<Operators>> make_operators(const BackendOptions& options);

}  // namespace troupe

// Chooses the implementation of the operators, once, at start.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/ops.h"

namespace troupe {

enum class KernelChoice : uint8_t {
  kAuto,       // the fastest this CPU has
  kReference,  // the scalar loops that define the bits: slow, for tests and doubts
  kAvx2,       // AVX2, FMA and F16C
};

const char* to_string(KernelChoice choice);
Result<KernelChoice> parse_kernel_choice(std::string_view text);  // "auto", "reference", "avx2"

inline constexpr size_t kThreadsMax = 256;

struct BackendOptions {
  KernelChoice kernels = KernelChoice::kAuto;
  size_t threads =
      1;  // 1 to kThreadsMax; the calling thread is one of them. The reference uses one only.
  // A deliberately wrong reduction order that depends on the number of rows in the batch
  // (split_k_control.h); exists so that tests can show that they notice; never set in production.
  bool test_split_k = false;
};

// Errors: kInvalidArgument (thread count), kUnavailable (the CPU lacks what the choice needs).
Result<std::unique_ptr<Operators>> make_operators(const BackendOptions& options);

}  // namespace troupe

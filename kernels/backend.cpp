#include "kernels/backend.h"

#include <fmt/format.h>

#include "kernels/cpu/cpu_operators.h"
#include "kernels/reference/reference_operators.h"
#include "kernels/split_k_control.h"

namespace troupe {

const char* to_string(KernelChoice choice) {
  switch (choice) {
    case KernelChoice::kAuto:
      return "auto";
    case KernelChoice::kReference:
      return "reference";
    case KernelChoice::kAvx2:
      return "avx2";
  }
  return "unknown";
}

Result<KernelChoice> parse_kernel_choice(std::string_view text) {
  for (const KernelChoice choice :
       {KernelChoice::kAuto, KernelChoice::kReference, KernelChoice::kAvx2})
    if (text == to_string(choice)) return choice;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("kernels '{}', allowed are auto, reference and avx2", text)};
}

Result<std::unique_ptr<Operators>> make_operators(const BackendOptions& options) {
  if (options.threads < 1 || options.threads > kThreadsMax)
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} kernel threads, allowed are 1 to {}",
                                                          options.threads, kThreadsMax)};
  const bool avx2 = cpu_has_avx2();
  if (options.kernels == KernelChoice::kAvx2 && !avx2)
    return Error{ErrorCode::kUnavailable,
                 "kernels 'avx2' need a CPU with AVX2, FMA and F16C, which this one lacks"};
  std::unique_ptr<Operators> operators;
  if (options.kernels == KernelChoice::kReference || !avx2) {
    operators = std::make_unique<ReferenceOperators>();
  } else {
    TROUPE_TRY(operators, make_cpu_operators(options.threads));
  }
  if (options.test_split_k) operators = make_split_k_control(std::move(operators));
  return operators;
}

}  // namespace troupe

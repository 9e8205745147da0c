#include <array>

#include "models/architectures/decoder.h"
#include "models/architectures/llama.h"
#include "models/architectures/qwen2.h"
#include "models/architectures/qwen3.h"

namespace troupe::decoder {

std::span<const Traits> all() {
  static constexpr std::array kAll{kLlama, kQwen2, kQwen3};
  return kAll;
}

}  // namespace troupe::decoder

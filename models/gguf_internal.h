// What the GGUF reader's own files share.
#pragma once

#include <cstdint>

namespace troupe {

struct GgmlTypeLayout {
  uint32_t type;
  const char* name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

// Null for a type whose layout this version does not know.
const GgmlTypeLayout* ggml_type_layout(uint32_t type);

}  // namespace troupe

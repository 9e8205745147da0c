// Names and sizes of the element types.
#include "kernels/tensor.h"

#include "kernels/quant_blocks.h"

namespace troupe {

const char* to_string(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "F32";
    case DataType::kF16:
      return "F16";
    case DataType::kQ8_0:
      return "Q8_0";
    case DataType::kQ4_0:
      return "Q4_0";
    case DataType::kQ4_1:
      return "Q4_1";
  }
  return "unknown";
}

size_t block_elements(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 ? 1 : kQuantBlock;
}

size_t block_bytes(DataType type) {
  switch (type) {
    case DataType::kF32:
      return sizeof(float);
    case DataType::kF16:
      return sizeof(uint16_t);
    case DataType::kQ8_0:
      return sizeof(BlockQ8_0);
    case DataType::kQ4_0:
      return sizeof(BlockQ4_0);
    case DataType::kQ4_1:
      return sizeof(BlockQ4_1);
  }
  return 0;
}

}  // namespace troupe

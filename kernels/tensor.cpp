// Names and sizes of the element types.
#include "kernels/tensor.h"

#include "kernels/quant_blocks.h"

namespace troupe {

namespace {

struct TypeFacts {
  DataType type;
  const char* name;  // ggml's
  size_t elements;   // of a block
  size_t bytes;
};

constexpr TypeFacts kFacts[] = {
    {DataType::kF32, "F32", 1, sizeof(float)},
    {DataType::kF16, "F16", 1, sizeof(uint16_t)},
    {DataType::kQ8_0, "Q8_0", kQuantBlock, sizeof(BlockQ8_0)},
    {DataType::kQ4_0, "Q4_0", kQuantBlock, sizeof(BlockQ4_0)},
    {DataType::kQ4_1, "Q4_1", kQuantBlock, sizeof(BlockQ4_1)},
    {DataType::kBf16, "BF16", 1, sizeof(uint16_t)},
    {DataType::kQ5_0, "Q5_0", kQuantBlock, sizeof(BlockQ5_0)},
    {DataType::kQ5_1, "Q5_1", kQuantBlock, sizeof(BlockQ5_1)},
    {DataType::kQ2K, "Q2_K", kSuperBlock, sizeof(BlockQ2K)},
    {DataType::kQ3K, "Q3_K", kSuperBlock, sizeof(BlockQ3K)},
    {DataType::kQ4K, "Q4_K", kSuperBlock, sizeof(BlockQ4K)},
    {DataType::kQ5K, "Q5_K", kSuperBlock, sizeof(BlockQ5K)},
    {DataType::kQ6K, "Q6_K", kSuperBlock, sizeof(BlockQ6K)},
    {DataType::kIq4Nl, "IQ4_NL", kQuantBlock, sizeof(BlockIq4Nl)},
    {DataType::kIq4Xs, "IQ4_XS", kSuperBlock, sizeof(BlockIq4Xs)},
    {DataType::kMxfp4, "MXFP4", kQuantBlock, sizeof(BlockMxfp4)},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kFacts); ++i)
    if (kFacts[i].type != kDataTypes[i] || static_cast<size_t>(kFacts[i].type) != i) return false;
  return std::size(kFacts) == kDataTypes.size();
}
static_assert(in_order(), "a type's number is its place in the table");

constexpr TypeFacts kUnknown{DataType::kF32, "unknown", 1, 0};

const TypeFacts& facts_of(DataType type) {
  const auto place = static_cast<size_t>(type);
  return place < std::size(kFacts) ? kFacts[place] : kUnknown;
}

}  // namespace

const char* to_string(DataType type) {
  return facts_of(type).name;
}
size_t block_elements(DataType type) {
  return facts_of(type).elements;
}
size_t block_bytes(DataType type) {
  return facts_of(type).bytes;
}

}  // namespace troupe

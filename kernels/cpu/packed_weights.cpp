#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/avx2_kernels.h"
#include "kernels/cpu/pack_decoded.h"
#include "kernels/quant_blocks.h"
#include "kernels/scalar_lane.h"

namespace troupe {

namespace {

using avx2::kPanelRows;

// Where the parts of one block of a panel lie.
struct BlockLayout {
  size_t bytes;         // of a block of 32 k of a panel
  size_t scales;        // bytes of scales, and minimums, in front
  size_t half_bytes;    // of one half of the panel
  size_t source_bytes;  // of a row's block in the file
  size_t source_scales;
  size_t quads;  // runs of 4 bytes of a row's block
};

BlockLayout layout_of(DataType type) {
  switch (type) {
    case DataType::kQ8_0:
      return {avx2::kQ8_0PanelBlock, 32, 256, sizeof(BlockQ8_0), 2, 8};
    case DataType::kQ4_0:
      return {avx2::kQ4_0PanelBlock, 32, 128, sizeof(BlockQ4_0), 2, 4};
    default:
      return {avx2::kQ4_1PanelBlock, 64, 128, sizeof(BlockQ4_1), 4, 4};
  }
}

bool is_float(DataType type) {
  return block_elements(type) == 1;
}

size_t panel_bytes(DataType type, size_t columns) {
  if (is_float(type)) return columns * kPanelRows * block_bytes(type);
  const size_t blocks = columns / kQuantBlock;
  return has_decoder(type) ? panel_layout(type).panel_bytes(blocks)
                           : blocks * layout_of(type).bytes;
}

void pack_float_panel(std::byte* to, const WeightSource& source, size_t panel) {
  const size_t size = block_bytes(source.type), k_end = source.columns;
  const size_t rows = std::min(kPanelRows, source.rows - panel * kPanelRows);
  const std::byte* from = source.bytes.data() + panel * kPanelRows * k_end * size;
  for (size_t k = 0; k < k_end; ++k)
    for (size_t i = 0; i < rows; ++i)
      std::memcpy(to + (k * kPanelRows + i) * size, from + (i * k_end + k) * size, size);
}

void pack_quantised_panel(std::byte* to, const WeightSource& source, size_t panel) {
  const BlockLayout layout = layout_of(source.type);
  const size_t blocks = source.columns / kQuantBlock;
  const size_t rows = std::min(kPanelRows, source.rows - panel * kPanelRows);
  for (size_t i = 0; i < rows; ++i) {
    const std::byte* from =
        source.bytes.data() + (panel * kPanelRows + i) * blocks * layout.source_bytes;
    for (size_t b = 0; b < blocks; ++b, from += layout.source_bytes) {
      std::byte* block = to + b * layout.bytes;
      for (size_t s = 0; s < layout.source_scales; s += 2)
        std::memcpy(block + 16 * s + 2 * i, from + s, 2);
      std::byte* quads = block + layout.scales + i / 8 * layout.half_bytes + i % 8 * 4;
      for (size_t quad = 0; quad < layout.quads; ++quad)
        std::memcpy(quads + 32 * quad, from + layout.source_scales + 4 * quad, 4);
    }
  }
}

float half_at(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half_to_float(half);
}

// The 32 weights of row i of a panel's block.
void read_block(DataType type, const std::byte* block, size_t i, float* y) {
  const BlockLayout layout = layout_of(type);
  const float d = half_at(block + 2 * i);
  const float m = type == DataType::kQ4_1 ? half_at(block + 32 + 2 * i) : 0.0F;
  const std::byte* quads = block + layout.scales + i / 8 * layout.half_bytes + i % 8 * 4;
  for (size_t k = 0; k < kQuantBlock; ++k) {
    const bool bytes = type == DataType::kQ8_0;
    const size_t at = bytes ? k : k % 16;
    const auto q = std::to_integer<int>(quads[at / 4 * 32 + at % 4]);
    const int nibble = k < 16 ? q & 15 : q >> 4;
    switch (type) {
      case DataType::kQ8_0:
        y[k] = static_cast<float>(static_cast<int8_t>(q)) * d;
        break;
      case DataType::kQ4_0:
        y[k] = static_cast<float>(nibble - 8) * d;
        break;
      default:
        y[k] = static_cast<float>(nibble) * d + m;
        break;
    }
    y[k] = canonical(y[k]);
  }
}

}  // namespace

size_t PackedWeights::panels() const {
  return (rows_ + kPanelRows - 1) / kPanelRows;
}

Result<std::unique_ptr<PackedWeights>> PackedWeights::allocate(const WeightSource& source,
                                                               PageArena& arena) {
  std::unique_ptr<PackedWeights> weights(new PackedWeights());
  weights->type_ = source.type;
  weights->rows_ = source.rows;
  weights->columns_ = source.columns;
  weights->panel_bytes_ = panel_bytes(source.type, source.columns);
  TROUPE_TRY(weights->memory_, arena.allocate(weights->memory_bytes()));
  return weights;
}

void PackedWeights::fill(const WeightSource& source, size_t first, size_t last) {
  for (size_t panel = first; panel < last; ++panel) {
    std::byte* to = memory_.get() + panel * panel_bytes_;
    if (is_float(type_))
      pack_float_panel(to, source, panel);
    else if (has_decoder(type_))
      pack_decoded_panel(to, source, panel);
    else
      pack_quantised_panel(to, source, panel);
  }
}

void PackedWeights::read_row(size_t r, std::span<float> y) const {
  const std::byte* panel = memory_.get() + r / kPanelRows * panel_bytes_;
  const size_t i = r % kPanelRows;
  if (type_ == DataType::kF32) {
    for (size_t k = 0; k < columns_; ++k) {
      std::memcpy(&y[k], panel + (k * kPanelRows + i) * sizeof(float), sizeof(float));
      y[k] = canonical(y[k]);
    }
  } else if (type_ == DataType::kF16) {
    for (size_t k = 0; k < columns_; ++k)
      y[k] = canonical(half_at(panel + (k * kPanelRows + i) * sizeof(uint16_t)));
  } else if (type_ == DataType::kBf16) {
    for (size_t k = 0; k < columns_; ++k) {
      uint16_t upper;
      std::memcpy(&upper, panel + (k * kPanelRows + i) * sizeof(upper), sizeof(upper));
      y[k] = canonical(bf16_to_float(upper));
    }
  } else if (has_decoder(type_)) {
    for (size_t b = 0; b < columns_ / kQuantBlock; ++b)
      dequantise(read_packed_block(type_, panel, i, b), minimums_of(type_),
                 y.data() + b * kQuantBlock);
  } else {
    const size_t bytes = layout_of(type_).bytes;
    for (size_t b = 0; b < columns_ / kQuantBlock; ++b)
      read_block(type_, panel + b * bytes, i, y.data() + b * kQuantBlock);
  }
}

}  // namespace troupe

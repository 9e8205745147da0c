// Weights in the panels of 16 rows that the AVX2 loops read (avx2_kernels.h gives the layout), and
// how they get there.
#pragma once

#include <memory>
#include <span>

#include "kernels/cpu/page_arena.h"
#include "kernels/ops.h"

namespace troupe {

class PackedWeights final : public Weights {
 public:
  // The source has been checked. Memory is claimed here; fill() writes it. Errors:
  // kResourceExhausted.
  static Result<std::unique_ptr<PackedWeights>> allocate(const WeightSource& source,
                                                         PageArena& arena);
  // Packs panels [first, last) of the source that allocate() was given.
  void fill(const WeightSource& source, size_t first, size_t last);

  DataType type() const override { return type_; }
  size_t rows() const override { return rows_; }
  size_t columns() const override { return columns_; }
  size_t memory_bytes() const override { return panels() * panel_bytes_; }

  size_t panels() const;
  const std::byte* data() const { return memory_.get(); }

  // One row as floats, as the reference's embed computes them.
  void read_row(size_t r, std::span<float> y) const;

 private:
  PackedWeights() = default;

  DataType type_ = DataType::kF32;
  size_t rows_ = 0;
  size_t columns_ = 0;
  size_t panel_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace troupe

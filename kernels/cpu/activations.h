// The quantised rows of x that a matmul's outputs share; its buffers grow and are used again.
#pragma once

#include <vector>

#include "kernels/cpu/avx2_kernels.h"
#include "kernels/quant_blocks.h"

namespace troupe {

class Activations {
 public:
  void resize(size_t rows, size_t blocks) {
    const size_t count = rows * blocks;
    if (count > d_.size()) {
      q_.resize(count * kQuantBlock);
      d_.resize(count);
      d_sum_.resize(count);
      d_half_sums_.resize(2 * count);
      sum_.resize(count);
    }
    rows_ = {.q = q_.data(),
             .d = d_.data(),
             .d_sum = d_sum_.data(),
             .d_half_sums = d_half_sums_.data(),
             .sum = sum_.data(),
             .blocks = blocks};
  }
  const avx2::QuantisedRows& rows() const { return rows_; }

 private:
  std::vector<int8_t> q_;
  std::vector<float> d_;
  std::vector<float> d_sum_;
  std::vector<float> d_half_sums_;
  std::vector<int32_t> sum_;
  avx2::QuantisedRows rows_;
};

}  // namespace troupe

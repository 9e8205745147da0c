// The arithmetic of decoder layers over a micro-batch (architectures/decoder.h): which operator
// runs on what, in which order. Work memory is taken once, for the largest micro-batch; running
// takes none.
//
//   x += Wo · attention(rope(Wq · n), rope(Wk · n), Wv · n)      with n = rms_norm(x)
//   x += Wdown · (silu(Wgate · m) * (Wup · m))                   with m = rms_norm(x)
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "models/architecture.h"
#include "models/weights.h"

namespace troupe {

// Rows [first, first + count) of a micro-batch.
struct RowRange {
  size_t first = 0;
  size_t count = 0;
};

struct ForwardRows {
  std::span<const RowPlace> places;  // [rows]
  std::span<const RowRange>
      unstored;  // rows whose keys and values the cache does not hold yet; ascending
};

class Forward {
 public:
  // The head runs over at most so many rows at a time, which bounds the memory of logits.
  static constexpr size_t kHeadRowsMax = 16;

  // `config` and `operators` outlive it. `logits` tells whether head() will be called.
  Forward(const ModelConfig& config, Operators& operators, uint32_t rows_max, bool logits);

  // x [rows][hidden], changed in place; rows is at most rows_max.
  void layer(TensorView<float> x, const LayerWeights& weights, const KvLayer& cache,
             const ForwardRows& rows);

  // The logits of some rows of x: [which.size()][vocabulary], valid until the next call. At most
  // kHeadRowsMax.
  TensorView<const float> head(TensorView<const float> x, std::span<const size_t> which,
                               const StageWeights& weights);

  uint64_t scratch_bytes() const { return scratch_.size() + logits_.size(); }

 private:
  void attention_part(TensorView<float> x, const LayerWeights& weights, const KvLayer& cache,
                      const ForwardRows& rows);
  void norm_heads(TensorView<float> x, std::span<const float> weight);
  void feed_forward_part(TensorView<float> x, const LayerWeights& weights);

  const ModelConfig& config_;
  Operators& operators_;
  size_t rows_max_;
  SharedBuffer
      scratch_;  // normed [rows_max][hidden], then the wider of {q, k, v, attended} and {gate, up}
  SharedBuffer logits_;  // gathered [kHeadRowsMax][hidden], logits [kHeadRowsMax][vocabulary]
};

}  // namespace troupe

#include "models/forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace troupe {

namespace {

// Hands out consecutive [rows][columns] pieces of a buffer; each starts on a 64-byte line.
class Carver {
 public:
  explicit Carver(std::span<float> floats) : floats_(floats) {}

  TensorView<float> take(size_t rows, size_t columns) {
    TROUPE_CHECK(used_ + rows * columns <= floats_.size(), "the scratch was sized for this");
    const TensorView<float> view{floats_.data() + used_, rows, columns};
    used_ = std::min(floats_.size(), round_up(used_ + rows * columns));
    return view;
  }

  static size_t round_up(size_t floats) { return (floats + 15) / 16 * 16; }

 private:
  std::span<float> floats_;
  size_t used_ = 0;
};

TensorView<float> part_of(TensorView<float> view, const RowRange& range) {
  return {view.data + range.first * view.columns, range.count, view.columns};
}

}  // namespace

Forward::Forward(const ModelConfig& config, Operators& operators, uint32_t rows_max, bool logits)
    : config_(config), operators_(operators), rows_max_(rows_max) {
  const auto padded = [&](size_t columns) { return Carver::round_up(rows_max_ * columns); };
  const size_t queries = config.query_columns();
  const size_t keys = config.kv_columns();
  const size_t attention = 2 * padded(queries) + 2 * padded(keys);
  const size_t feed_forward = 2 * padded(config.ffn);
  scratch_ = SharedBuffer::allocate((padded(config.hidden) + std::max(attention, feed_forward)) *
                                    sizeof(float));
  if (logits)
    logits_ = SharedBuffer::allocate((Carver::round_up(kHeadRowsMax * config.hidden) +
                                      Carver::round_up(kHeadRowsMax * config.vocabulary)) *
                                     sizeof(float));
}

void Forward::layer(TensorView<float> x, const LayerWeights& weights, const KvLayer& cache,
                    const ForwardRows& rows) {
  TROUPE_CHECK(x.rows <= rows_max_ && x.rows == rows.places.size() && x.columns == config_.hidden,
               "the stage checked the micro-batch");
  attention_part(x, weights, cache, rows);
  feed_forward_part(x, weights);
}

void Forward::attention_part(TensorView<float> x, const LayerWeights& weights, const KvLayer& cache,
                             const ForwardRows& rows) {
  Carver scratch(scratch_.as_mutable<float>());
  const size_t queries = config_.query_columns();
  const size_t keys = config_.kv_columns();
  const TensorView<float> normed = scratch.take(x.rows, x.columns);
  const TensorView<float> q = scratch.take(x.rows, queries);
  const TensorView<float> k = scratch.take(x.rows, keys);
  const TensorView<float> v = scratch.take(x.rows, keys);
  const TensorView<float> attended = scratch.take(x.rows, queries);

  operators_.rms_norm(normed, x, weights.attention_norm, config_.rms_epsilon);
  const std::array<MatmulOutput, 3> projections = {MatmulOutput{q, weights.query.get()},
                                                   MatmulOutput{k, weights.key.get()},
                                                   MatmulOutput{v, weights.value.get()}};
  operators_.matmul(projections, normed);
  if (config_.qkv_bias) {
    operators_.add_bias(q, weights.query_bias);
    operators_.add_bias(k, weights.key_bias);
    operators_.add_bias(v, weights.value_bias);
  }
  if (config_.qk_norm) {
    norm_heads(q, weights.query_norm);
    norm_heads(k, weights.key_norm);
  }
  const RopeParameters rotation{.head_dim = config_.head_dim,
                                .rotary_dims = config_.rotary_dims,
                                .frequency_base = config_.rope_base,
                                .pairs = config_.rope_pairs};
  operators_.rope(q, rows.places, rotation);
  operators_.rope(k, rows.places, rotation);
  for (const RowRange& range : rows.unstored)
    operators_.store_kv(cache, part_of(k, range), part_of(v, range),
                        rows.places.subspan(range.first, range.count));
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  operators_.attention(attended, q, cache, rows.places, scale);
  // The normed rows are spent: their memory takes the projection.
  const MatmulOutput output{normed, weights.attention_output.get()};
  operators_.matmul({&output, 1}, attended);
  operators_.add(x, normed);
}

// Each head is a row of its own to the norm.
void Forward::norm_heads(TensorView<float> x, std::span<const float> weight) {
  const size_t head_dim = config_.head_dim;
  const TensorView<float> heads{x.data, x.rows * (x.columns / head_dim), head_dim};
  operators_.rms_norm(heads, heads, weight, config_.rms_epsilon);
}

void Forward::feed_forward_part(TensorView<float> x, const LayerWeights& weights) {
  Carver scratch(scratch_.as_mutable<float>());
  const TensorView<float> normed = scratch.take(x.rows, x.columns);
  const TensorView<float> gate = scratch.take(x.rows, config_.ffn);
  const TensorView<float> up = scratch.take(x.rows, config_.ffn);

  operators_.rms_norm(normed, x, weights.feed_forward_norm, config_.rms_epsilon);
  const std::array<MatmulOutput, 2> widened = {MatmulOutput{gate, weights.gate.get()},
                                               MatmulOutput{up, weights.up.get()}};
  operators_.matmul(widened, normed);
  operators_.swiglu(gate, gate, up);
  const MatmulOutput output{normed, weights.down.get()};
  operators_.matmul({&output, 1}, gate);
  operators_.add(x, normed);
}

TensorView<const float> Forward::head(TensorView<const float> x, std::span<const size_t> which,
                                      const StageWeights& weights) {
  TROUPE_CHECK(!which.empty() && which.size() <= kHeadRowsMax && weights.head != nullptr,
               "the last stage takes rows in pieces");
  Carver scratch(logits_.as_mutable<float>());
  const TensorView<float> gathered = scratch.take(which.size(), x.columns);
  const TensorView<float> logits = scratch.take(which.size(), config_.vocabulary);
  for (size_t i = 0; i < which.size(); ++i)
    std::memcpy(gathered.row(i).data(), x.row(which[i]).data(), x.columns * sizeof(float));
  operators_.rms_norm(gathered, gathered, weights.output_norm, config_.rms_epsilon);
  const MatmulOutput output{logits, weights.head.get()};
  operators_.matmul({&output, 1}, gathered);
  return logits;
}

}  // namespace troupe

// The operators that work row by row without weights matrices: rms_norm, rope, swiglu, add (N3, N4,
// N6).
#include <cmath>

#include "kernels/checks.h"
#include "kernels/functions.h"
#include "kernels/reference/reference_operators.h"
#include "kernels/scalar_lane.h"
#include "kernels/vector_sum.h"

namespace troupe {

void ReferenceOperators::rms_norm(TensorView<float> y, TensorView<const float> x,
                                  std::span<const float> weight, float epsilon) {
  check_rms_norm(y, x, weight);
  for (size_t r = 0; r < x.rows; ++r) {
    const std::span<const float> from = x.row(r);
    const float squares = vector_sum(from.size(), [&](size_t c) { return from[c] * from[c]; });
    const float root = std::sqrt(squares / static_cast<float>(from.size()) + epsilon);
    for (size_t c = 0; c < from.size(); ++c) y.row(r)[c] = canonical((from[c] / root) * weight[c]);
  }
}

void ReferenceOperators::rope(TensorView<float> x, std::span<const RowPlace> places,
                              const RopeParameters& parameters) {
  check_rope(x, places, parameters);
  for (size_t r = 0; r < x.rows; ++r) {
    const RopeAngles::Row angles = rope_angles_.row(places[r].position, parameters);
    for (size_t head = 0; head < x.columns; head += parameters.head_dim) {
      float* h = x.row(r).data() + head;
      const size_t pairs = parameters.rotary_dims / 2;
      for (size_t i = 0; i < pairs; ++i) {
        const bool adjacent = parameters.pairs == RopePairs::kAdjacent;
        float& first = h[adjacent ? 2 * i : i];
        float& second = h[adjacent ? 2 * i + 1 : i + pairs];
        const float a = first, b = second;
        first = canonical(a * angles.cosines[i] - b * angles.sines[i]);
        second = canonical(a * angles.sines[i] + b * angles.cosines[i]);
      }
    }
  }
}

void ReferenceOperators::swiglu(TensorView<float> y, TensorView<const float> gate,
                                TensorView<const float> up) {
  check_same_shape(y, gate);
  check_same_shape(y, up);
  for (size_t i = 0; i < y.size(); ++i) {
    const float g = gate.data[i];
    const float exponential = exp_lane(ScalarLane{-g}).value;
    y.data[i] = canonical((g / (1.0F + exponential)) * up.data[i]);
  }
}

void ReferenceOperators::add(TensorView<float> y, TensorView<const float> x) {
  check_same_shape(y, x);
  for (size_t i = 0; i < y.size(); ++i) y.data[i] = canonical(y.data[i] + x.data[i]);
}

void ReferenceOperators::add_bias(TensorView<float> y, std::span<const float> bias) {
  check_add_bias(y, bias);
  for (size_t r = 0; r < y.rows; ++r)
    for (size_t c = 0; c < y.columns; ++c) y.row(r)[c] = canonical(y.row(r)[c] + bias[c]);
}

}  // namespace troupe

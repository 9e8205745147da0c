// What every implementation checks before it computes, so that all refuse the same arguments:
// sources of weights with an error (they come from files), the rest with TROUPE_CHECK (callers have
// checked their models already).
#pragma once

#include <span>

#include "kernels/ops.h"

namespace troupe {

// Errors: kInvalidArgument with what was seen: no rows or columns, more than 2^40 elements, columns
// that are not whole blocks, or another number of bytes than the shape needs.
Result<void> check_weight_source(const WeightSource& source);

void check_embed(TensorView<float> y, std::span<const uint32_t> tokens, const Weights& table);
void check_rms_norm(TensorView<float> y, TensorView<const float> x, std::span<const float> weight);
void check_matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x);
void check_rope(TensorView<float> x, std::span<const RowPlace> places,
                const RopeParameters& parameters);
void check_store_kv(const KvLayer& layer, TensorView<const float> k, TensorView<const float> v,
                    std::span<const RowPlace> places);
void check_attention(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                     std::span<const RowPlace> places);
void check_add_bias(TensorView<float> y, std::span<const float> bias);
void check_same_shape(TensorView<const float> a, TensorView<const float> b);

}  // namespace troupe

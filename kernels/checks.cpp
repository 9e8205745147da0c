// Argument checks shared by every implementation of the operators.
#include "kernels/checks.h"

#include <fmt/format.h>

#include "base/check.h"

namespace troupe {

namespace {

constexpr uint64_t kWeightElementsMax = uint64_t{1} << 40;

// A row's own position must lie in a block of the layer; its whole past too where it is read.
void check_places(const KvLayer& layer, std::span<const RowPlace> places, bool whole_past) {
  TROUPE_CHECK(layer.keys != nullptr && layer.values != nullptr, "a layer has keys and values");
  for (const RowPlace& place : places) {
    const size_t page = place.position / kKvBlockTokens;
    TROUPE_CHECK(page < place.blocks.size(), "a row's blocks cover its position");
    for (size_t p = whole_past ? 0 : page; p <= page; ++p)
      TROUPE_CHECK(place.blocks[p] < layer.blocks, "a row's blocks lie inside the layer");
  }
}

}  // namespace

Result<void> check_weight_source(const WeightSource& source) {
  const size_t elements = block_elements(source.type);
  const size_t bytes = block_bytes(source.type);
  if (bytes == 0)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("weight type {}, unknown here", static_cast<int>(source.type))};
  if (source.rows == 0 || source.columns == 0 || source.rows > kWeightElementsMax / source.columns)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("weight of {} x {} elements, allowed are 1 to {}", source.rows,
                             source.columns, kWeightElementsMax)};
  if (source.columns % elements != 0)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} weight with {} columns, not a multiple of {}",
                             to_string(source.type), source.columns, elements)};
  const size_t needed = source.rows * (source.columns / elements) * bytes;
  if (source.bytes.size() != needed)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} weight of {} x {} in {} bytes, needs {}", to_string(source.type),
                             source.rows, source.columns, source.bytes.size(), needed)};
  return {};
}

void check_embed(TensorView<float> y, std::span<const uint32_t> tokens, const Weights& table) {
  TROUPE_CHECK(y.rows == tokens.size(), "embed writes one row a token");
  TROUPE_CHECK(y.columns == table.columns(), "embed's rows are as wide as the table");
  for (const uint32_t token : tokens) TROUPE_CHECK(token < table.rows(), "tokens lie in the table");
}

void check_same_shape(TensorView<const float> a, TensorView<const float> b) {
  TROUPE_CHECK(a.rows == b.rows && a.columns == b.columns, "element-wise operands have one shape");
}

void check_add_bias(TensorView<float> y, std::span<const float> bias) {
  TROUPE_CHECK(bias.size() == y.columns, "one bias a column");
}

void check_rms_norm(TensorView<float> y, TensorView<const float> x, std::span<const float> weight) {
  check_same_shape(y, x);
  TROUPE_CHECK(weight.size() == x.columns && x.columns > 0, "one norm weight a column");
}

void check_matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) {
  for (const MatmulOutput& output : outputs) {
    TROUPE_CHECK(output.weights != nullptr, "a product has weights");
    TROUPE_CHECK(output.weights->columns() == x.columns, "weights are as wide as x");
    TROUPE_CHECK(output.y.rows == x.rows && output.y.columns == output.weights->rows(),
                 "y is [x.rows][weights.rows]");
  }
}

void check_rope(TensorView<float> x, std::span<const RowPlace> places,
                const RopeParameters& parameters) {
  TROUPE_CHECK(x.rows == places.size(), "one place a row");
  TROUPE_CHECK(parameters.head_dim > 0 && x.columns % parameters.head_dim == 0, "whole heads");
  TROUPE_CHECK(parameters.rotary_dims % 2 == 0 && parameters.rotary_dims <= parameters.head_dim,
               "rotary dimensions are even and inside a head");
  TROUPE_CHECK(parameters.frequency_base > 0, "the frequency base is above 0");
}

void check_store_kv(const KvLayer& layer, TensorView<const float> k, TensorView<const float> v,
                    std::span<const RowPlace> places) {
  check_same_shape(k, v);
  TROUPE_CHECK(k.rows == places.size(), "one place a row");
  TROUPE_CHECK(k.columns == layer.kv_heads * layer.head_dim, "k holds every kv head");
  check_places(layer, places, false);
}

void check_attention(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                     std::span<const RowPlace> places) {
  check_same_shape(y, q);
  TROUPE_CHECK(q.rows == places.size(), "one place a row");
  TROUPE_CHECK(layer.head_dim > 0 && layer.kv_heads > 0, "a layer has heads");
  TROUPE_CHECK(q.columns % (layer.head_dim * layer.kv_heads) == 0,
               "query heads are a multiple of kv heads");
  check_places(layer, places, true);
}

}  // namespace troupe

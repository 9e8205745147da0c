// The operators as plain scalar loops. These loops are the definition (numerics rules N1-N6): every
// other implementation equals them bit for bit, NaN included (scalar_lane.h states the NaN rule).
#pragma once

#include <vector>

#include "kernels/ops.h"
#include "kernels/rope_angles.h"

namespace troupe {

class ReferenceOperators final : public Operators {
 public:
  std::string_view name() const override { return "reference"; }
  size_t threads() const override { return 1; }

  Result<std::unique_ptr<Weights>> pack(const WeightSource& source) override;
  void embed(TensorView<float> y, std::span<const uint32_t> tokens, const Weights& table) override;
  void rms_norm(TensorView<float> y, TensorView<const float> x, std::span<const float> weight,
                float epsilon) override;
  void matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) override;
  void rope(TensorView<float> x, std::span<const RowPlace> places,
            const RopeParameters& parameters) override;
  void store_kv(const KvLayer& layer, TensorView<const float> k, TensorView<const float> v,
                std::span<const RowPlace> places) override;
  void attention(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                 std::span<const RowPlace> places, float scale) override;
  void swiglu(TensorView<float> y, TensorView<const float> gate,
              TensorView<const float> up) override;
  void add(TensorView<float> y, TensorView<const float> x) override;
  void add_bias(TensorView<float> y, std::span<const float> bias) override;

 private:
  RopeAngles rope_angles_;
};

// The bytes of the file, unchanged.
class ReferenceWeights final : public Weights {
 public:
  explicit ReferenceWeights(const WeightSource& source)
      : type_(source.type),
        rows_(source.rows),
        columns_(source.columns),
        bytes_(source.bytes.begin(), source.bytes.end()) {}

  DataType type() const override { return type_; }
  size_t rows() const override { return rows_; }
  size_t columns() const override { return columns_; }
  size_t memory_bytes() const override { return bytes_.size(); }

  // First byte of a row.
  const std::byte* row(size_t r) const {
    return bytes_.data() + r * (columns_ / block_elements(type_)) * block_bytes(type_);
  }

 private:
  DataType type_;
  size_t rows_;
  size_t columns_;
  std::vector<std::byte> bytes_;
};

// One block of 32 activations as block-quantised weights meet it.
struct QuantisedBlock {
  float d = 0;      // x ≈ q · d
  int32_t sum = 0;  // Σ q
  int8_t q[32] = {};
};
QuantisedBlock quantise_block(const float* x);

}  // namespace troupe

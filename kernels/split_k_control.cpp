#include "kernels/split_k_control.h"

#include <algorithm>
#include <vector>

#include "kernels/slices.h"

namespace troupe {

namespace {

class SplitKControl final : public Operators {
 public:
  explicit SplitKControl(std::unique_ptr<Operators> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return "split-k control"; }
  size_t threads() const override { return inner_->threads(); }
  Result<std::unique_ptr<Weights>> pack(const WeightSource& source) override {
    return inner_->pack(source);
  }
  void embed(TensorView<float> y, std::span<const uint32_t> tokens, const Weights& table) override {
    inner_->embed(y, tokens, table);
  }
  void rms_norm(TensorView<float> y, TensorView<const float> x, std::span<const float> weight,
                float epsilon) override {
    inner_->rms_norm(y, x, weight, epsilon);
  }
  void matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) override;
  void rope(TensorView<float> x, std::span<const RowPlace> places,
            const RopeParameters& parameters) override {
    inner_->rope(x, places, parameters);
  }
  void store_kv(const KvLayer& layer, TensorView<const float> k, TensorView<const float> v,
                std::span<const RowPlace> places) override {
    inner_->store_kv(layer, k, v, places);
  }
  void attention(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                 std::span<const RowPlace> places, float scale) override {
    inner_->attention(y, q, layer, places, scale);
  }
  void swiglu(TensorView<float> y, TensorView<const float> gate,
              TensorView<const float> up) override {
    inner_->swiglu(y, gate, up);
  }
  void add(TensorView<float> y, TensorView<const float> x) override { inner_->add(y, x); }
  void add_bias(TensorView<float> y, std::span<const float> bias) override {
    inner_->add_bias(y, bias);
  }

 private:
  std::unique_ptr<Operators> inner_;
};

void SplitKControl::matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) {
  inner_->matmul(outputs, x);
  // A multiple of 32, so that blocks of activations quantise as before; rarely where the tree of
  // slices would cut.
  const size_t cut = slice_blocks(x.columns) / 3 * kSliceBlock;
  if (x.rows < 2 || cut == 0) return;
  std::vector<float> head(x.data, x.data + x.size()), tail = head;
  for (size_t r = 0; r < x.rows; ++r) {
    float* head_row = head.data() + r * x.columns;
    float* tail_row = tail.data() + r * x.columns;
    std::fill(head_row + cut, head_row + x.columns, 0.0F);
    std::fill(tail_row, tail_row + cut, 0.0F);
  }
  for (const MatmulOutput& output : outputs) {
    std::vector<float> rest(output.y.size());
    const MatmulOutput first = output;
    const MatmulOutput second{{rest.data(), output.y.rows, output.y.columns}, output.weights};
    inner_->matmul({&first, 1}, {head.data(), x.rows, x.columns});
    inner_->matmul({&second, 1}, {tail.data(), x.rows, x.columns});
    for (size_t i = 0; i < rest.size(); ++i) output.y.data[i] += rest[i];
  }
}

}  // namespace

std::unique_ptr<Operators> make_split_k_control(std::unique_ptr<Operators> inner) {
  return std::make_unique<SplitKControl>(std::move(inner));
}

}  // namespace troupe

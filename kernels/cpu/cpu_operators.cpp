// The launchers: check the arguments, cut the work into chunks for the pool, call the AVX2 loops on
// each. One fork and join an operator at most, and none where the work is smaller than what waking
// a thread costs.
#include "kernels/cpu/cpu_operators.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/checks.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/avx2_kernels.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quant_blocks.h"
#include "kernels/rope_angles.h"

namespace troupe {

namespace {

// Least work of a chunk: about a microsecond of products, some microseconds of memory.
constexpr size_t kChunkProducts = 65536;
constexpr size_t kChunkElements = 8192;  // of element-wise operators
constexpr size_t kChunksPerThread = 8;   // so that a late thread costs an eighth of its share
constexpr size_t kPanelsTogether = 4;    // what a single row's float kernel takes at once

class CpuOperators final : public Operators {
 public:
  explicit CpuOperators(std::unique_ptr<ThreadPool> pool)
      : pool_(std::move(pool)), attention_(pool_->threads()) {}

  std::string_view name() const override { return "avx2"; }
  size_t threads() const override { return pool_->threads(); }

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
  // body(begin, end) over [0, count) in chunks of at least `count_min`, spread over the pool.
  template <class Body>
  void for_ranges(size_t count, size_t count_min, const Body& body) {
    const size_t chunks_max = pool_->threads() == 1 ? 1 : kChunksPerThread * pool_->threads();
    const size_t chunks = std::clamp<size_t>(count / std::max<size_t>(count_min, 1), 1, chunks_max);
    pool_->run(chunks, [&](size_t chunk, size_t) {
      body(count * chunk / chunks, count * (chunk + 1) / chunks);
    });
  }
  // Rows of an element-wise operator.
  template <class Body>
  void for_rows(size_t rows, size_t columns, const Body& body) {
    for_ranges(rows, kChunkElements / std::max<size_t>(columns, 1) + 1,
               [&](size_t begin, size_t end) {
                 for (size_t r = begin; r < end; ++r) body(r);
               });
  }

  void multiply(const MatmulOutput& output, size_t first, size_t last, TensorView<const float> x);

  std::unique_ptr<ThreadPool> pool_;
  PageArena arena_;
  Activations activations_;
  RopeAngles rope_angles_;
  std::vector<float> angles_;  // of the rows at hand: [row][cosines, sines]
  AttentionPlan attention_;
};

const PackedWeights& packed(const Weights& weights) {
  return static_cast<const PackedWeights&>(weights);
}

Result<std::unique_ptr<Weights>> CpuOperators::pack(const WeightSource& source) {
  TROUPE_TRY_VOID(check_weight_source(source));
  TROUPE_TRY(auto weights, PackedWeights::allocate(source, arena_));
  for_ranges(weights->panels(), 1,
             [&](size_t first, size_t last) { weights->fill(source, first, last); });
  return std::unique_ptr<Weights>(std::move(weights));
}

void CpuOperators::embed(TensorView<float> y, std::span<const uint32_t> tokens,
                         const Weights& table) {
  check_embed(y, tokens, table);
  for_rows(y.rows, y.columns, [&](size_t r) { packed(table).read_row(tokens[r], y.row(r)); });
}

void CpuOperators::rms_norm(TensorView<float> y, TensorView<const float> x,
                            std::span<const float> weight, float epsilon) {
  check_rms_norm(y, x, weight);
  for_rows(x.rows, x.columns, [&](size_t r) {
    avx2::rms_norm_row(y.row(r).data(), x.row(r).data(), weight.data(), x.columns, epsilon);
  });
}

using QuantisedKernel = decltype(&avx2::matmul_q8_0);

QuantisedKernel quantised_kernel(DataType type) {
  switch (type) {
    case DataType::kQ8_0:
      return avx2::matmul_q8_0;
    case DataType::kQ4_0:
      return avx2::matmul_q4_0;
    case DataType::kQ4_1:
      return avx2::matmul_q4_1;
    case DataType::kQ5_0:
      return avx2::matmul_q5_0;
    case DataType::kQ5_1:
      return avx2::matmul_q5_1;
    case DataType::kQ2K:
      return avx2::matmul_q2_k;
    case DataType::kQ3K:
      return avx2::matmul_q3_k;
    case DataType::kQ4K:
      return avx2::matmul_q4_k;
    case DataType::kQ5K:
      return avx2::matmul_q5_k;
    case DataType::kQ6K:
      return avx2::matmul_q6_k;
    case DataType::kIq4Nl:
      return avx2::matmul_iq4_nl;
    case DataType::kIq4Xs:
      return avx2::matmul_iq4_xs;
    case DataType::kMxfp4:
      return avx2::matmul_mxfp4;
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBf16:
      break;
  }
  TROUPE_CHECK(false, "weights of a known, quantised type were packed");
  return nullptr;
}

// Panels [first, last) of one product.
void CpuOperators::multiply(const MatmulOutput& output, size_t first, size_t last,
                            TensorView<const float> x) {
  const PackedWeights& weights = packed(*output.weights);
  const avx2::ProductRows out{
      .y = output.y.data, .stride = output.y.columns, .rows = x.rows, .columns = weights.rows()};
  const std::byte* panels = weights.data();
  const avx2::QuantisedRows& xq = activations_.rows();
  switch (weights.type()) {
    case DataType::kF32:
      return avx2::matmul_f32(panels, first, last, x.data, x.columns, out);
    case DataType::kF16:
      return avx2::matmul_f16(panels, first, last, x.data, x.columns, out);
    case DataType::kBf16:
      return avx2::matmul_bf16(panels, first, last, x.data, x.columns, out);
    default:
      return quantised_kernel(weights.type())(panels, first, last, xq, out);
  }
}

void CpuOperators::matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) {
  check_matmul(outputs, x);
  if (x.rows == 0) return;
  size_t panels = 0;
  bool quantised = false;
  for (const MatmulOutput& output : outputs) {
    panels += packed(*output.weights).panels();
    quantised = quantised || block_elements(output.weights->type()) > 1;
  }
  if (quantised) {
    activations_.resize(x.rows, x.columns / kQuantBlock);
    for_rows(x.rows, x.columns,
             [&](size_t r) { avx2::quantise_row(x.row(r).data(), r, activations_.rows()); });
  }
  // The group's panels, one after another, are one range: its chunks are equal whatever the
  // outputs' shapes.
  const size_t groups = (panels + kPanelsTogether - 1) / kPanelsTogether;
  const size_t products = kPanelsTogether * avx2::kPanelRows * x.columns * x.rows;
  for_ranges(groups, kChunkProducts / products + 1, [&](size_t begin, size_t end) {
    begin *= kPanelsTogether;
    end = std::min(end * kPanelsTogether, panels);
    size_t offset = 0;
    for (const MatmulOutput& output : outputs) {
      const size_t count = packed(*output.weights).panels();
      const size_t first = std::clamp(begin, offset, offset + count);
      const size_t last = std::clamp(end, offset, offset + count);
      if (first < last) multiply(output, first - offset, last - offset, x);
      offset += count;
    }
  });
}

void CpuOperators::rope(TensorView<float> x, std::span<const RowPlace> places,
                        const RopeParameters& parameters) {
  check_rope(x, places, parameters);
  const size_t pairs = parameters.rotary_dims / 2;
  if (pairs == 0) return;
  angles_.resize(x.rows * 2 * pairs);
  for (size_t r = 0; r < x.rows; ++r) {
    const RopeAngles::Row row = rope_angles_.row(places[r].position, parameters);
    std::copy_n(row.cosines, pairs, angles_.data() + r * 2 * pairs);
    std::copy_n(row.sines, pairs, angles_.data() + (r * 2 + 1) * pairs);
  }
  const auto rotate =
      parameters.pairs == RopePairs::kAdjacent ? avx2::rotate_head : avx2::rotate_halves;
  for_rows(x.rows, x.columns, [&](size_t r) {
    const float* cosines = angles_.data() + r * 2 * pairs;
    for (size_t head = 0; head < x.columns; head += parameters.head_dim)
      rotate(x.row(r).data() + head, cosines, cosines + pairs, pairs);
  });
}

// One head's key and value of one row; `halves` is room for [head_dim].
void store_head(const KvLayer& layer, size_t head, const RowPlace& place, const float* k,
                const float* v, std::span<uint16_t> halves) {
  const size_t block = place.blocks[place.position / kKvBlockTokens];
  const size_t slot = place.position % kKvBlockTokens;
  const size_t page = (block * layer.kv_heads + head) * layer.head_dim * kKvBlockTokens;
  avx2::store_halves(layer.values + page + slot * layer.head_dim, v, layer.head_dim);
  avx2::store_halves(halves.data(), k, layer.head_dim);
  for (size_t d = 0; d < layer.head_dim; ++d)
    layer.keys[page + d * kKvBlockTokens + slot] = halves[d];
}

void CpuOperators::store_kv(const KvLayer& layer, TensorView<const float> k,
                            TensorView<const float> v, std::span<const RowPlace> places) {
  check_store_kv(layer, k, v, places);
  const size_t head_dim = layer.head_dim;
  // By heads, rows ascending within: should a caller repeat a place, the last row wins as in the
  // reference.
  for_ranges(
      layer.kv_heads, kChunkElements / (k.rows * head_dim + 1) + 1, [&](size_t begin, size_t end) {
        std::vector<uint16_t> halves(head_dim);
        for (size_t r = 0; r < k.rows; ++r)
          for (size_t h = begin; h < end; ++h) {
            const size_t at = h * head_dim;
            store_head(layer, h, places[r], k.row(r).data() + at, v.row(r).data() + at, halves);
          }
      });
}

void CpuOperators::attention(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                             std::span<const RowPlace> places, float scale) {
  check_attention(y, q, layer, places);
  attention_.prepare(y, q, layer, places, scale);
  const size_t tasks = attention_.tasks();
  const bool alone = pool_->threads() == 1 || attention_.products() < 2 * kChunkProducts;
  const size_t chunks =
      alone ? std::min<size_t>(tasks, 1) : std::min(tasks, 2 * kChunksPerThread * threads());
  pool_->run(chunks, [&](size_t chunk, size_t thread) {
    for (size_t t = tasks * chunk / chunks; t < tasks * (chunk + 1) / chunks; ++t)
      attention_.run(t, thread);
  });
}

void CpuOperators::swiglu(TensorView<float> y, TensorView<const float> gate,
                          TensorView<const float> up) {
  check_same_shape(y, gate);
  check_same_shape(y, up);
  for_ranges(y.size(), kChunkElements, [&](size_t begin, size_t end) {
    avx2::swiglu(y.data + begin, gate.data + begin, up.data + begin, end - begin);
  });
}

void CpuOperators::add(TensorView<float> y, TensorView<const float> x) {
  check_same_shape(y, x);
  for_ranges(y.size(), kChunkElements, [&](size_t begin, size_t end) {
    avx2::add(y.data + begin, x.data + begin, end - begin);
  });
}

void CpuOperators::add_bias(TensorView<float> y, std::span<const float> bias) {
  check_add_bias(y, bias);
  for_rows(y.rows, y.columns,
           [&](size_t r) { avx2::add(y.row(r).data(), bias.data(), y.columns); });
}

}  // namespace

bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

Result<std::unique_ptr<Operators>> make_cpu_operators(size_t threads) {
  TROUPE_TRY(auto pool, ThreadPool::start(threads));
  return std::unique_ptr<Operators>(std::make_unique<CpuOperators>(std::move(pool)));
}

}  // namespace troupe

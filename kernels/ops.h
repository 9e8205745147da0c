// THE contract of every operator; no code. What an operator means, to the last bit, is
// kernels/reference; every other implementation gives the same bits (numerics.md, rules N1-N8;
// tests/kernels compares them).
//
// Callers check shapes when a model is loaded; the launchers TROUPE_CHECK them again, never per
// element. All calls come from one thread (the stage's compute thread); an implementation spreads
// work over its own pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kernels/tensor.h"

namespace troupe {

// A weight matrix in the layout its implementation computes on (repacked once, at load). Usable
// only with the Operators that made it.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual DataType type() const = 0;
  virtual size_t rows() const = 0;
  virtual size_t columns() const = 0;
  virtual size_t memory_bytes() const = 0;
};

// One product y = x · Wᵀ of a group that shares x: y [x.rows][weights->rows()].
struct MatmulOutput {
  TensorView<float> y;
  const Weights* weights = nullptr;
};

// Keys and values of one layer, in blocks of kKvBlockTokens positions, as IEEE half precision (KV
// format f16).
//   keys    [block][kv_head][head_dim][kKvBlockTokens]   so that a vector's lanes are positions
//   values  [block][kv_head][kKvBlockTokens][head_dim]   so that a vector's lanes are dimensions
// A block is also the page of numerics rule N5.
inline constexpr size_t kKvBlockTokens = 64;
struct KvLayer {
  uint16_t* keys = nullptr;
  uint16_t* values = nullptr;
  size_t blocks = 0;
  size_t kv_heads = 0;
  size_t head_dim = 0;
};

// Where one row of a micro-batch stands: its position in its sequence, and the blocks of that
// sequence: position p lives in blocks[p / 64] at slot p % 64. Blocks cover at least [0, position].
struct RowPlace {
  uint32_t position = 0;
  std::span<const uint32_t> blocks;
};

// Which dimensions rotary positions turn together: 2i and 2i + 1, or i and i + rotary_dims / 2.
enum class RopePairs : uint8_t { kAdjacent, kHalves };

struct RopeParameters {
  size_t head_dim = 0;
  size_t rotary_dims =
      0;  // even, at most head_dim; the first so many dimensions of each head rotate
  float frequency_base = 10000.0F;
  RopePairs pairs = RopePairs::kAdjacent;
};

class Operators {
 public:
  virtual ~Operators() = default;
  virtual std::string_view name() const = 0;  // "reference", "avx2"
  virtual size_t threads() const = 0;

  // Repacks. Errors: kInvalidArgument (a type or shape this implementation does not take).
  virtual Result<std::unique_ptr<Weights>> pack(const WeightSource& source) = 0;

  // y[r][:] = row tokens[r] of the table, as float. Every token is below table.rows().
  virtual void embed(TensorView<float> y, std::span<const uint32_t> tokens,
                     const Weights& table) = 0;

  // y[r][c] = x[r][c] / sqrt(mean(x[r]^2) + epsilon) * weight[c];  y may be x.   (N3)
  virtual void rms_norm(TensorView<float> y, TensorView<const float> x,
                        std::span<const float> weight, float epsilon) = 0;

  // Each y = x · Wᵀ by N2. x is quantised once where a group's weights are block-quantised. y never
  // overlaps x.
  virtual void matmul(std::span<const MatmulOutput> outputs, TensorView<const float> x) = 0;

  // Rotates each head of x [rows][heads * head_dim] in place by its row's position.
  virtual void rope(TensorView<float> x, std::span<const RowPlace> places,
                    const RopeParameters& parameters) = 0;

  // Writes k, v [rows][kv_heads * head_dim] at their places, rounded to half precision (nearest
  // even).
  virtual void store_kv(const KvLayer& layer, TensorView<const float> k, TensorView<const float> v,
                        std::span<const RowPlace> places) = 0;

  // y[r] = causal attention of q[r] over positions [0, places[r].position] of its blocks, all
  // heads; query head h reads kv head h / (heads / kv_heads). q, y [rows][heads * head_dim].   (N5)
  virtual void attention(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
                         std::span<const RowPlace> places, float scale) = 0;

  // y = gate / (1 + exp(-gate)) * up, element-wise; y may be gate.
  virtual void swiglu(TensorView<float> y, TensorView<const float> gate,
                      TensorView<const float> up) = 0;

  // y = y + x, element-wise.
  virtual void add(TensorView<float> y, TensorView<const float> x) = 0;

  // y[r][c] = y[r][c] + bias[c].
  virtual void add_bias(TensorView<float> y, std::span<const float> bias) = 0;
};

}  // namespace troupe

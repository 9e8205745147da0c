// The reference against plain double arithmetic: its bits are the definition, so these tests ask
// whether the definition is the right function.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "kernels/backend.h"
#include "kernels/reference/reference_operators.h"
#include "kernels/slices.h"
#include "tests/kernels/inputs.h"

namespace troupe::test {

namespace {

TensorView<const float> row_of(const std::vector<float>& x) {
  return {x.data(), 1, x.size()};
}

// y of a weight of one row, and the same in double from the dequantised row.
void check_product(DataType type, double tolerance) {
  Inputs inputs(3);
  ReferenceOperators operators;
  const size_t k = whole_blocks(type, 576);
  const auto bytes = inputs.weight(type, 1, k, Kind::kTame);
  auto packed = operators.pack({.type = type, .rows = 1, .columns = k, .bytes = {bytes}});
  BOOST_REQUIRE(packed.ok());
  const auto weights = std::move(packed).value();
  std::vector<float> w(k), y(1);
  const uint32_t token = 0;
  operators.embed({w.data(), 1, k}, {&token, 1}, *weights);
  const auto x = inputs.values(k, Kind::kTame);
  const MatmulOutput output{{y.data(), 1, 1}, weights.get()};
  operators.matmul({&output, 1}, row_of(x));
  double exact = 0, size = 0;
  for (size_t i = 0; i < k; ++i) {
    exact += static_cast<double>(w[i]) * static_cast<double>(x[i]);
    size += std::fabs(static_cast<double>(w[i]) * static_cast<double>(x[i]));
  }
  BOOST_TEST(std::fabs(static_cast<double>(y[0]) - exact) <= tolerance * size, to_string(type));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reference_operators)

// Quantised activations are off by up to half a step of 1/127 of their block's largest; the errors
// mostly cancel.
BOOST_AUTO_TEST_CASE(products_are_close_to_double) {
  for (const DataType type : kDataTypes) check_product(type, is_quantised(type) ? 2e-3 : 1e-6);
}

BOOST_AUTO_TEST_CASE(slices_cover_all_blocks_in_order) {
  for (size_t blocks = 0; blocks < 200; ++blocks) {
    BOOST_TEST(slice_begin(0, blocks) == 0U);
    BOOST_TEST(slice_begin(kSlices, blocks) == blocks);
    for (size_t s = 0; s < kSlices; ++s)
      BOOST_TEST(slice_begin(s, blocks) <= slice_begin(s + 1, blocks));
  }
}

BOOST_AUTO_TEST_CASE(a_block_quantises_to_steps_of_its_largest) {
  float x[kQuantBlock] = {};
  x[3] = -2.54F;
  x[4] = 1.27F;
  x[5] = 0.05F;  // 2.5 steps of 0.02: a tie up to rounding
  const QuantisedBlock block = quantise_block(x);
  BOOST_TEST(block.d == 2.54F / 127.0F);
  BOOST_TEST(int{block.q[3]} == -127);
  BOOST_TEST(std::abs(int{block.q[4]} - 63) <= 1);
  BOOST_TEST(block.sum == block.q[3] + block.q[4] + block.q[5]);
}

BOOST_AUTO_TEST_CASE(a_block_without_a_scale_quantises_to_nothing) {
  float x[kQuantBlock] = {};
  BOOST_TEST(quantise_block(x).d == 0.0F);
  x[0] = 1e-38F;  // 127 / 1e-38 overflows
  x[1] = -1e-38F;
  BOOST_TEST(quantise_block(x).d == 0.0F);
  BOOST_TEST(int{quantise_block(x).q[0]} == 0);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    x[7] = bad;
    BOOST_TEST(std::isnan(quantise_block(x).d));
    BOOST_TEST(int{quantise_block(x).q[0]} == 0);
  }
}

BOOST_AUTO_TEST_CASE(attention_is_softmax_of_scaled_scores) {
  ReferenceOperators operators;
  Inputs inputs(9);
  const size_t head_dim = 40, tokens = 150, pages = 3;
  std::vector<uint16_t> keys(pages * head_dim * kKvBlockTokens), values(keys.size());
  for (auto* part : {&keys, &values})
    for (uint16_t& x : *part) x = float_to_half(inputs.uniform());
  const KvLayer layer{keys.data(), values.data(), pages, 1, head_dim};
  const std::vector<uint32_t> blocks{2, 0, 1};
  const RowPlace place{static_cast<uint32_t>(tokens - 1), blocks};
  const auto q = inputs.values(head_dim, Kind::kTame);
  std::vector<float> y(head_dim);
  operators.attention({y.data(), 1, head_dim}, row_of(q), layer, {&place, 1}, 0.5F);
  std::vector<double> exact(head_dim);
  double sum = 0;
  for (size_t p = 0; p < tokens; ++p) {
    const size_t page = blocks[p / kKvBlockTokens] * head_dim * kKvBlockTokens,
                 slot = p % kKvBlockTokens;
    double score = 0;
    for (size_t d = 0; d < head_dim; ++d)
      score += static_cast<double>(q[d]) *
               static_cast<double>(half_to_float(keys[page + d * kKvBlockTokens + slot]));
    const double e = std::exp(score * 0.5);
    sum += e;
    for (size_t d = 0; d < head_dim; ++d)
      exact[d] += e * static_cast<double>(half_to_float(values[page + slot * head_dim + d]));
  }
  for (size_t d = 0; d < head_dim; ++d)
    BOOST_TEST(std::fabs(static_cast<double>(y[d]) - exact[d] / sum) < 1e-6);
}

BOOST_AUTO_TEST_CASE(row_operators_are_close_to_double) {
  ReferenceOperators operators;
  Inputs inputs(10);
  const auto x = inputs.values(100, Kind::kTame), weight = inputs.values(100, Kind::kTame);
  std::vector<float> norm(100), gated(100);
  operators.rms_norm({norm.data(), 1, 100}, row_of(x), weight, 1e-5F);
  operators.swiglu({gated.data(), 1, 100}, row_of(x), row_of(weight));
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
  for (size_t i = 0; i < 100; ++i) {
    const double v = static_cast<double>(x[i]), w = static_cast<double>(weight[i]);
    BOOST_TEST(std::fabs(static_cast<double>(norm[i]) - v / std::sqrt(squares / 100 + 1e-5) * w) <
               1e-6);
    BOOST_TEST(std::fabs(static_cast<double>(gated[i]) - v / (1 + std::exp(-v)) * w) < 1e-6);
  }
}

// Pairs are (2i, 2i + 1): at position 1 pair 0 turns by one radian and keeps its length.
BOOST_AUTO_TEST_CASE(rope_turns_neighbouring_pairs_by_the_position) {
  ReferenceOperators operators;
  std::vector<float> x{1, 0, 0, 1, 5, 6};
  const RowPlace place{1, {}};
  operators.rope({x.data(), 1, 6}, {&place, 1},
                 {.head_dim = 6, .rotary_dims = 4, .frequency_base = 100.0F});
  const float tolerance = 1e-6F;
  BOOST_TEST(std::fabs(x[0] - std::cos(1.0F)) < tolerance);
  BOOST_TEST(std::fabs(x[1] - std::sin(1.0F)) < tolerance);
  BOOST_TEST(std::fabs(x[2] + std::sin(0.1F)) < tolerance);  // 100^(-2/4)
  BOOST_TEST(std::fabs(x[3] - std::cos(0.1F)) < tolerance);
  BOOST_TEST(x[4] == 5.0F);
  BOOST_TEST(x[5] == 6.0F);
}

// The first half of the rotating dimensions turns against the second.
BOOST_AUTO_TEST_CASE(rope_turns_halves_by_the_position) {
  ReferenceOperators operators;
  std::vector<float> x{1, 0, 0, 1, 5, 6};
  const RowPlace place{1, {}};
  operators.rope(
      {x.data(), 1, 6}, {&place, 1},
      {.head_dim = 6, .rotary_dims = 4, .frequency_base = 100.0F, .pairs = RopePairs::kHalves});
  const float tolerance = 1e-6F;
  BOOST_TEST(std::fabs(x[0] - std::cos(1.0F)) < tolerance);  // with x[2], by one radian
  BOOST_TEST(std::fabs(x[2] - std::sin(1.0F)) < tolerance);
  BOOST_TEST(std::fabs(x[1] + std::sin(0.1F)) < tolerance);  // with x[3], by 100^(-2/4)
  BOOST_TEST(std::fabs(x[3] - std::cos(0.1F)) < tolerance);
  BOOST_TEST(x[4] == 5.0F);
  BOOST_TEST(x[5] == 6.0F);
  const std::vector<float> bias{1, 2, 3, 4, 5, 6};
  std::vector<float> y{10, 20, 30, 40, 50, 60, -1, -2, -3, -4, -5, -6};
  operators.add_bias({y.data(), 2, 6}, bias);
  BOOST_TEST((y == std::vector<float>{11, 22, 33, 44, 55, 66, 0, 0, 0, 0, 0, 0}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

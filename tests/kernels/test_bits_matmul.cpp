// Products of every type and odd shape: bits equal to the reference, and a wrong order is noticed.
#include <boost/test/unit_test.hpp>

#include "tests/kernels/backend_fixture.h"

namespace troupe::test {

namespace {

struct Case {
  size_t rows;     // of x
  size_t outputs;  // of W
  size_t k;
};

std::vector<float> multiply(Operators& operators, const Case& shape, DataType type,
                            const std::vector<std::byte>& bytes, const std::vector<float>& x) {
  const auto weights = pack(operators, type, shape.outputs, shape.k, bytes);
  std::vector<float> y(shape.rows * shape.outputs, 7.0F);
  const MatmulOutput output{view(y, shape.rows), weights.get()};
  operators.matmul({&output, 1}, view(x, shape.rows));
  return y;
}

void compare(Case shape, DataType type, Kind kind, uint64_t seed) {
  shape.k = whole_blocks(type, shape.k);
  Inputs inputs(seed);
  const auto bytes = inputs.weight(type, shape.outputs, shape.k, kind);
  const auto x = inputs.values(shape.rows * shape.k, kind);
  const auto expected = multiply(*reference(), shape, type, bytes, x);
  for (Backend& backend : backends()) {
    const auto y = multiply(*backend.operators, shape, type, bytes, x);
    BOOST_TEST(first_difference(y, expected) == expected.size(),
               backend.name << " " << to_string(type) << " rows " << shape.rows << " outputs "
                            << shape.outputs << " k " << shape.k << " kind "
                            << static_cast<int>(kind) << " seed " << seed);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernel_bits_matmul)

BOOST_AUTO_TEST_CASE(products_of_odd_shapes_equal_the_reference) {
  uint64_t seed = 100;
  for (const DataType type : kDataTypes)
    for (const size_t rows : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 11U, 13U})
      for (const size_t outputs : {1U, 5U, 8U, 16U, 23U, 70U})
        for (const size_t k : {32U, 64U, 96U, 288U, 576U})
          compare({rows, outputs, k}, type, Kind::kTame, ++seed);
}

BOOST_AUTO_TEST_CASE(float_products_of_ragged_lengths_equal_the_reference) {
  uint64_t seed = 2000;
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16})
    for (const size_t k : {1U, 7U, 31U, 33U, 65U, 257U, 300U})
      for (const size_t rows : {1U, 4U, 9U}) compare({rows, 83, k}, type, Kind::kWide, ++seed);
}

BOOST_AUTO_TEST_CASE(not_a_number_infinity_and_extremes_equal_the_reference) {
  uint64_t seed = 3000;
  for (const Kind kind : {Kind::kWide, Kind::kWild})
    for (const DataType type : kDataTypes)
      for (const size_t rows : {1U, 3U, 8U})
        for (const size_t k : {32U, 256U, 576U}) compare({rows, 40, k}, type, kind, ++seed);
}

BOOST_AUTO_TEST_CASE(large_products_equal_the_reference) {
  for (const DataType type : kDataTypes) compare({33, 320, 1536}, type, Kind::kTame, 4000);
}

// Bytes of quantised weights in which all codes are made of one byte and all whole-number scales of
// another; the factors stay.
std::vector<std::byte> filled(DataType type, std::vector<std::byte> bytes, std::byte codes,
                              std::byte scales) {
  const size_t size = block_bytes(type);
  for (size_t at = 0; at < bytes.size(); at += size) {
    std::vector<bool> kept(size);
    for (const size_t place : half_places(type)) kept[place] = kept[place + 1] = true;
    if (type == DataType::kMxfp4) kept[0] = true;
    for (size_t i = 0; i < size; ++i)
      if (!kept[i]) bytes[at + i] = is_scale_byte(type, i) ? scales : codes;
  }
  return bytes;
}

// The largest block sums there are, of either sign: all codes and scales at their ends against
// activations that all quantise to ±127.
BOOST_AUTO_TEST_CASE(the_largest_block_sums_do_not_overflow) {
  constexpr std::byte kEnds[] = {std::byte{0x00}, std::byte{0x7F}, std::byte{0x80},
                                 std::byte{0xFF}};
  for (const DataType type : kDataTypes) {
    if (!is_quantised(type)) continue;
    const Case shape{5, 17, whole_blocks(type, 96)};
    const auto random = Inputs(5).weight(type, shape.outputs, shape.k, Kind::kTame);
    for (const std::byte codes : kEnds)
      for (const std::byte scales : kEnds)
        for (const float sign : {1.0F, -1.0F}) {
          const auto bytes = filled(type, random, codes, scales);
          const std::vector<float> x(shape.rows * shape.k, sign);
          const auto expected = multiply(*reference(), shape, type, bytes, x);
          for (Backend& backend : backends())
            BOOST_TEST(
                differences(multiply(*backend.operators, shape, type, bytes, x), expected) == 0U,
                backend.name << " " << to_string(type));
        }
  }
}

// Blocks whose largest value lies around 3.7e-37, where 127 / amax overflows and the block becomes
// zero.
BOOST_AUTO_TEST_CASE(vanishing_activations_equal_the_reference) {
  for (const DataType type : kDataTypes) {
    if (!is_quantised(type)) continue;
    const Case shape{9, 24, whole_blocks(type, 320)};
    Inputs inputs(8);
    const auto bytes = inputs.weight(type, shape.outputs, shape.k, Kind::kTame);
    auto x = inputs.values(shape.rows * shape.k, Kind::kTame);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= std::ldexp(1.0F, -110 - static_cast<int>(i / 32 % 39));
    const auto expected = multiply(*reference(), shape, type, bytes, x);
    for (Backend& backend : backends())
      BOOST_TEST(differences(multiply(*backend.operators, shape, type, bytes, x), expected) == 0U,
                 backend.name << " " << to_string(type));
  }
}

// A NaN that comes from the weights keeps neither sign nor payload, nor does the one of infinity
// times zero.
BOOST_AUTO_TEST_CASE(every_not_a_number_is_the_canonical_one) {
  for (const DataType type : kDataTypes)
    for (const uint16_t odd : {uint16_t{0xFE55}, uint16_t{0x7D01}, uint16_t{0xFC00}}) {
      if (type == DataType::kMxfp4) continue;  // knows neither NaN nor infinity
      const Case shape{5, 40, whole_blocks(type, 96)};
      Inputs inputs(9);
      auto bytes = inputs.weight(type, shape.outputs, shape.k, Kind::kTame);
      const float wide = half_to_float(odd);
      const size_t size = block_bytes(type);
      for (size_t at = 0; at < bytes.size(); at += 7 * size) {
        std::byte* block = bytes.data() + at;
        const auto* upper = reinterpret_cast<const std::byte*>(&wide) + sizeof(wide) - size;
        if (half_places(type).empty())  // a float, or the upper half of one
          std::memcpy(block, upper, size);
        for (const size_t place : half_places(type)) std::memcpy(block + place, &odd, sizeof(odd));
      }
      auto x = inputs.values(shape.rows * shape.k, Kind::kTame);
      std::fill(x.begin(), x.begin() + 2 * 96, 0.0F);
      const auto expected = multiply(*reference(), shape, type, bytes, x);
      size_t nans = 0;
      for (const float y : expected) {
        nans += y != y;
        BOOST_REQUIRE((y == y || std::bit_cast<uint32_t>(y) == 0x7FC00000U));
      }
      BOOST_TEST(nans > 0U, to_string(type));
      for (Backend& backend : backends())
        BOOST_TEST(differences(multiply(*backend.operators, shape, type, bytes, x), expected) == 0U,
                   backend.name << " " << to_string(type));
    }
}

BOOST_AUTO_TEST_CASE(a_group_of_mixed_types_equals_the_reference) {
  const size_t k = 256, rows = 6;
  const auto multiply_group = [&](Operators& operators) {
    Inputs inputs(6000);
    const auto x = inputs.values(rows * k, Kind::kTame);
    std::vector<std::unique_ptr<Weights>> weights;
    std::vector<std::vector<float>> y;
    std::vector<MatmulOutput> outputs;
    for (const DataType type : kDataTypes) {
      const size_t n = 9 + inputs.below(90);
      weights.push_back(pack(operators, type, n, k, inputs.weight(type, n, k, Kind::kTame)));
      y.emplace_back(rows * n);
    }
    for (size_t i = 0; i < weights.size(); ++i)
      outputs.push_back({view(y[i], rows), weights[i].get()});
    operators.matmul(outputs, view(x, rows));
    std::vector<float> all;
    for (const auto& part : y) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto expected = multiply_group(*reference());
  for (Backend& backend : backends())
    BOOST_TEST(differences(multiply_group(*backend.operators), expected) == 0U, backend.name);
}

// The negative control: this comparison fails when the order of a sum depends on the batch.
BOOST_AUTO_TEST_CASE(a_split_k_product_is_noticed) {
  for (const DataType type : kDataTypes)
    for (const KernelChoice kernels : {KernelChoice::kReference, KernelChoice::kAvx2}) {
      const Case shape{4, 64, whole_blocks(type, 576)};
      Inputs inputs(7000);
      const auto bytes = inputs.weight(type, shape.outputs, shape.k, Kind::kTame);
      const auto x = inputs.values(shape.rows * shape.k, Kind::kTame);
      const auto expected = multiply(*reference(), shape, type, bytes, x);
      auto control = make_operators({.kernels = kernels, .test_split_k = true}).value();
      const auto wrong = multiply(*control, shape, type, bytes, x);
      BOOST_TEST(differences(wrong, expected) > expected.size() / 20, to_string(type));
      const std::vector<float> alone(x.begin(), x.begin() + static_cast<ptrdiff_t>(shape.k));
      const auto right = multiply(*control, {1, shape.outputs, shape.k}, type, bytes, alone);
      BOOST_TEST(first_difference(right, expected) == right.size(), to_string(type));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

// Row-wise operators: bits equal to the reference.
#include <boost/test/unit_test.hpp>

#include "tests/kernels/backend_fixture.h"

namespace troupe::test {

namespace {

// act(operators) computes one output from one seed; every backend must give the reference's bits.
template <class Act>
void compare(const std::string& what, const Act& act) {
  const std::vector<float> expected = act(*reference());
  for (Backend& backend : backends()) {
    const std::vector<float> y = act(*backend.operators);
    BOOST_TEST(first_difference(y, expected) == expected.size(), backend.name << " " << what);
  }
}

constexpr Kind kKinds[] = {Kind::kTame, Kind::kWide, Kind::kWild};
constexpr size_t kColumns[] = {1, 7, 8, 9, 15, 16, 17, 31, 64, 100, 576, 8191};

}  // namespace

BOOST_AUTO_TEST_SUITE(kernel_bits_rows)

BOOST_AUTO_TEST_CASE(rms_norm_equals_the_reference) {
  uint64_t seed = 0;
  for (const Kind kind : kKinds)
    for (const size_t columns : kColumns)
      for (const size_t rows : {1U, 5U, 40U}) {
        ++seed;
        compare("rms_norm seed " + std::to_string(seed), [&](Operators& operators) {
          Inputs inputs(seed);
          auto x = inputs.values(rows * columns, kind);
          const auto weight = inputs.values(columns, kind);
          operators.rms_norm(view(x, rows), view(std::as_const(x), rows), weight, 1e-5F);
          return x;
        });
      }
}

BOOST_AUTO_TEST_CASE(swiglu_and_add_equal_the_reference) {
  uint64_t seed = 1000;
  for (const Kind kind : kKinds)
    for (const size_t columns : kColumns)
      for (const size_t rows : {1U, 3U, 33U}) {
        ++seed;
        compare("swiglu, add seed " + std::to_string(seed), [&](Operators& operators) {
          Inputs inputs(seed);
          auto gate = inputs.values(rows * columns, kind);
          for (float& g : gate) g *= 40;
          const auto up = inputs.values(rows * columns, kind);
          operators.swiglu(view(gate, rows), view(std::as_const(gate), rows), view(up, rows));
          operators.add(view(gate, rows), view(up, rows));
          operators.add_bias(view(gate, rows), inputs.values(columns, kind));
          return gate;
        });
      }
}

BOOST_AUTO_TEST_CASE(rope_equals_the_reference) {
  uint64_t seed = 2000;
  for (const Kind kind : kKinds)
    for (const size_t head_dim : {2U, 6U, 10U, 64U, 80U, 128U})
      for (const size_t rows : {1U, 4U, 70U}) {
        ++seed;
        const size_t rotary = seed % 2 == 0 ? head_dim : head_dim / 4 * 2;
        compare("rope seed " + std::to_string(seed), [&](Operators& operators) {
          Inputs inputs(seed);
          auto x = inputs.values(rows * head_dim * 3, kind);
          std::vector<RowPlace> places(rows);
          for (RowPlace& place : places)
            place.position = static_cast<uint32_t>(inputs.below(200000));
          places.back().position = places.front().position + 1024;  // shares its slot in the table
          operators.rope(view(x, rows), places,
                         {.head_dim = head_dim, .rotary_dims = rotary, .frequency_base = 1e4F});
          operators.rope(view(x, rows), places,
                         {.head_dim = head_dim,
                          .rotary_dims = rotary,
                          .frequency_base = 1e6F,
                          .pairs = RopePairs::kHalves});
          return x;
        });
      }
}

BOOST_AUTO_TEST_CASE(embedded_rows_equal_the_reference) {
  for (const DataType type : kDataTypes)
    for (const Kind kind : kKinds)
      for (const size_t table : {1U, 16U, 37U})
        compare(std::string("embed ") + to_string(type), [&](Operators& operators) {
          Inputs inputs(table);
          const size_t columns = whole_blocks(type, 288);
          const auto weights =
              pack(operators, type, table, columns, inputs.weight(type, table, columns, kind));
          std::vector<uint32_t> tokens(50);
          for (uint32_t& token : tokens) token = static_cast<uint32_t>(inputs.below(table));
          std::vector<float> y(tokens.size() * columns);
          operators.embed(view(y, tokens.size()), tokens, *weights);
          return y;
        });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

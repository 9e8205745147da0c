// Stored keys and values, and attention over them: bits equal to the reference.
#include <boost/test/unit_test.hpp>

#include "tests/kernels/backend_fixture.h"

namespace troupe::test {

namespace {

struct Case {
  size_t kv_heads;
  size_t sharing;  // query heads a kv head
  size_t head_dim;
  size_t tokens_max;
  Kind kind;
};

// Rows of two sequences: a run of prefill, then single tokens, some out of order.
void add_rows(KvFixture& kv, Inputs& inputs, size_t tokens_max) {
  const auto last = static_cast<uint32_t>(tokens_max - 1);
  const uint32_t start = last > 20 ? last - 20 : 0;
  for (uint32_t p = start; p <= last; ++p) kv.add_row(0, p);
  kv.add_row(1, last);
  kv.add_row(1, 0);
  kv.add_row(0, static_cast<uint32_t>(inputs.below(tokens_max)));
  kv.add_row(1, static_cast<uint32_t>(inputs.below(tokens_max)));
}

std::vector<float> attend(Operators& operators, const Case& shape, uint64_t seed) {
  Inputs inputs(seed);
  KvFixture kv(inputs, shape.kv_heads, shape.head_dim, 2, shape.tokens_max, shape.kind);
  add_rows(kv, inputs, shape.tokens_max);
  const size_t rows = kv.places.size();
  const size_t columns = shape.kv_heads * shape.sharing * shape.head_dim;
  auto q = inputs.values(rows * columns, shape.kind == Kind::kWild ? Kind::kTame : shape.kind);
  if (shape.kind == Kind::kWild) q[inputs.below(q.size())] = std::numeric_limits<float>::infinity();
  std::vector<float> y(rows * columns, 3.0F);
  operators.attention(view(y, rows), view(std::as_const(q), rows), kv.layer, kv.places, 0.125F);
  return y;
}

void compare(const Case& shape, uint64_t seed) {
  const auto expected = attend(*reference(), shape, seed);
  for (Backend& backend : backends()) {
    const auto y = attend(*backend.operators, shape, seed);
    BOOST_TEST(first_difference(y, expected) == expected.size(),
               backend.name << " kv heads " << shape.kv_heads << " sharing " << shape.sharing
                            << " head_dim " << shape.head_dim << " tokens " << shape.tokens_max
                            << " seed " << seed);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernel_bits_attention)

BOOST_AUTO_TEST_CASE(attention_of_odd_shapes_equals_the_reference) {
  uint64_t seed = 0;
  for (const Kind kind : {Kind::kTame, Kind::kWide, Kind::kWild})
    for (const size_t head_dim : {1U, 8U, 20U, 32U, 64U, 80U, 128U, 320U})
      for (const size_t tokens : {1U, 2U, 63U, 64U, 65U, 150U})
        compare({1 + seed % 3, 1 + seed % 4, head_dim, tokens, kind}, ++seed);
}

BOOST_AUTO_TEST_CASE(a_long_past_equals_the_reference) {
  compare({3, 3, 64, 700, Kind::kTame}, 500);
  compare({3, 3, 64, 700, Kind::kWild}, 501);
}

// Large scores: the page maximum matters, and most exponentials vanish.
BOOST_AUTO_TEST_CASE(large_scores_equal_the_reference) {
  const size_t head_dim = 64, rows = 3;
  const auto act = [&](Operators& operators) {
    Inputs inputs(77);
    KvFixture kv(inputs, 2, head_dim, 1, 200, Kind::kTame);
    for (const uint32_t p : {199U, 130U, 64U}) kv.add_row(0, p);
    auto q = inputs.values(rows * 4 * head_dim, Kind::kTame);
    for (float& x : q) x *= 300;
    std::vector<float> y(q.size());
    operators.attention(view(y, rows), view(std::as_const(q), rows), kv.layer, kv.places, 1.0F);
    return y;
  };
  const auto expected = act(*reference());
  for (Backend& backend : backends())
    BOOST_TEST(differences(act(*backend.operators), expected) == 0U, backend.name);
}

BOOST_AUTO_TEST_CASE(stored_halves_equal_the_reference) {
  uint64_t seed = 900;
  for (const Kind kind : {Kind::kTame, Kind::kWide, Kind::kWild})
    for (const size_t head_dim : {1U, 8U, 20U, 64U})
      for (const size_t rows : {1U, 5U, 130U}) {
        ++seed;
        const auto act = [&](Operators& operators) {
          Inputs inputs(seed);
          KvFixture kv(inputs, 3, head_dim, 2, rows, kind);
          for (size_t r = 0; r < rows; ++r) kv.add_row(r % 2, static_cast<uint32_t>(r));
          const auto k = inputs.values(rows * 3 * head_dim, kind);
          const auto v = inputs.values(rows * 3 * head_dim, kind);
          operators.store_kv(kv.layer, view(k, rows), view(v, rows), kv.places);
          kv.keys.insert(kv.keys.end(), kv.values.begin(), kv.values.end());
          return kv.keys;
        };
        const auto expected = act(*reference());
        for (Backend& backend : backends())
          BOOST_TEST((act(*backend.operators) == expected), backend.name << " seed " << seed);
      }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

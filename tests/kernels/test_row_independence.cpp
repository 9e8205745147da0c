// What a row becomes does not depend on the rows computed with it: batch neighbours and prefill
// chunks are invisible.
#include <boost/test/unit_test.hpp>

#include "tests/kernels/backend_fixture.h"

namespace troupe::test {

namespace {

std::vector<float> rows_of(const std::vector<float>& all, size_t columns, size_t first,
                           size_t last) {
  return {all.begin() + static_cast<ptrdiff_t>(first * columns),
          all.begin() + static_cast<ptrdiff_t>(last * columns)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(row_independence)

BOOST_AUTO_TEST_CASE(products_of_a_batch_equal_products_of_its_rows) {
  const size_t rows = 23, outputs = 150;
  for (const DataType type : kDataTypes)
    for (Backend& backend : backends()) {
      const size_t k = whole_blocks(type, 320);
      Inputs inputs(1);
      const auto weights =
          pack(*backend.operators, type, outputs, k, inputs.weight(type, outputs, k, Kind::kTame));
      const auto x = inputs.values(rows * k, Kind::kTame);
      std::vector<float> batch(rows * outputs), chunked;
      const MatmulOutput whole{view(batch, rows), weights.get()};
      backend.operators->matmul({&whole, 1}, view(x, rows));
      for (size_t first = 0, size = 1; first < rows; first += size, size = size % 5 + 1) {
        const size_t last = std::min(rows, first + size);
        const auto part = rows_of(x, k, first, last);
        std::vector<float> y((last - first) * outputs);
        const MatmulOutput output{view(y, last - first), weights.get()};
        backend.operators->matmul({&output, 1}, view(part, last - first));
        chunked.insert(chunked.end(), y.begin(), y.end());
      }
      BOOST_TEST(differences(batch, chunked) == 0U, backend.name << " " << to_string(type));
    }
}

BOOST_AUTO_TEST_CASE(attention_of_a_chunk_equals_attention_of_its_rows) {
  const size_t head_dim = 64, heads = 6, rows = 150, columns = heads * head_dim;
  for (Backend& backend : backends()) {
    Inputs inputs(2);
    KvFixture kv(inputs, 2, head_dim, 1, rows, Kind::kTame);
    for (uint32_t p = 0; p < rows; ++p) kv.add_row(0, p);
    const auto q = inputs.values(rows * columns, Kind::kTame);
    std::vector<float> batch(rows * columns), chunked;
    const std::span<const RowPlace> places = kv.places;
    backend.operators->attention(view(batch, rows), view(q, rows), kv.layer, places, 0.125F);
    for (size_t first = 0, size = 1; first < rows; first += size, size = size * 2 % 61 + 1) {
      const size_t last = std::min(rows, first + size);
      const auto part = rows_of(q, columns, first, last);
      std::vector<float> y((last - first) * columns);
      backend.operators->attention(view(y, last - first), view(part, last - first), kv.layer,
                                   places.subspan(first, last - first), 0.125F);
      chunked.insert(chunked.end(), y.begin(), y.end());
    }
    BOOST_TEST(differences(batch, chunked) == 0U, backend.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

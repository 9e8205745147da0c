#include "tests/kernels/backend_fixture.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/support/skip.h"

namespace troupe::test {

std::unique_ptr<Operators> reference() {
  return make_operators({.kernels = KernelChoice::kReference}).value();
}

std::vector<Backend>& backends() {
  static std::vector<Backend> all = [] {
    std::vector<Backend> made;
    for (const size_t threads : {1U, 2U, 3U}) {
      auto operators = make_operators({.kernels = KernelChoice::kAvx2, .threads = threads});
      if (!operators.ok()) skip_all(to_string(operators.error()));
      made.push_back({"avx2, threads " + std::to_string(threads), std::move(operators).value()});
    }
    return made;
  }();
  return all;
}

std::unique_ptr<Weights> pack(Operators& operators, DataType type, size_t rows, size_t columns,
                              const std::vector<std::byte>& bytes) {
  auto weights = operators.pack({.type = type, .rows = rows, .columns = columns, .bytes = {bytes}});
  BOOST_REQUIRE_MESSAGE(weights.ok(), "packs");
  return std::move(weights).value();
}

KvFixture::KvFixture(Inputs& inputs, size_t kv_heads, size_t head_dim, size_t sequences,
                     size_t tokens_max, Kind kind) {
  const size_t pages = (tokens_max + kKvBlockTokens - 1) / kKvBlockTokens;
  const size_t count = sequences * pages;
  std::vector<uint32_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint32_t>(i);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[inputs.below(i)]);
  for (size_t s = 0; s < sequences; ++s)
    blocks.emplace_back(order.begin() + static_cast<ptrdiff_t>(s * pages),
                        order.begin() + static_cast<ptrdiff_t>((s + 1) * pages));
  const size_t size = count * kv_heads * head_dim * kKvBlockTokens;
  for (std::vector<uint16_t>* part : {&keys, &values}) {
    part->resize(size);
    for (uint16_t& x : *part)
      x = kind == Kind::kWild && inputs.below(2000) != 0 ? float_to_half(inputs.uniform())
                                                         : float_to_half(inputs.value(kind));
  }
  layer = {keys.data(), values.data(), count, kv_heads, head_dim};
}

}  // namespace troupe::test

#include "models/kv_cache.h"

#include <boost/test/unit_test.hpp>
#include <set>

namespace {

using namespace troupe;

KvCache make_cache(uint32_t blocks = 8) {
  Result<KvCache> cache =
      KvCache::allocate({.layers = 3, .kv_heads = 2, .head_dim = 16, .blocks = blocks});
  BOOST_REQUIRE(cache.ok());
  return std::move(cache).value();
}

using Table = std::vector<uint32_t>;

}  // namespace

BOOST_AUTO_TEST_SUITE(kv_cache)

BOOST_AUTO_TEST_CASE(layers_and_halves_do_not_overlap_and_fill_the_memory) {
  const KvCache cache = make_cache(5);
  // 5 blocks x 2 heads x 16 dimensions x 64 positions x 2 bytes, keys and values, 3 layers.
  const uint64_t half = 5 * 2 * 16 * 64 * 2;
  BOOST_TEST(cache.bytes() == 3 * 2 * half);
  std::set<uintptr_t> starts;
  for (uint32_t i = 0; i < 3; ++i) {
    const KvLayer layer = cache.layer(i);
    BOOST_TEST(layer.blocks == 5U);
    BOOST_TEST(layer.kv_heads == 2U);
    BOOST_TEST(layer.head_dim == 16U);
    for (uint16_t* half_start : {layer.keys, layer.values}) {
      BOOST_TEST(reinterpret_cast<uintptr_t>(half_start) % 64 == 0U);
      starts.insert(reinterpret_cast<uintptr_t>(half_start));
      half_start[0] = 1;
      half_start[half / 2 - 1] = 1;  // the last element is memory of ours too
    }
  }
  uintptr_t previous = 0;
  for (const uintptr_t start : starts) {
    if (previous != 0) BOOST_TEST(start - previous == half);
    previous = start;
  }
  BOOST_TEST(starts.size() == 6U);
}

BOOST_AUTO_TEST_CASE(absurd_shapes_are_refused) {
  const auto code = [](const KvShape& shape) {
    const Result<KvCache> cache = KvCache::allocate(shape);
    BOOST_REQUIRE(!cache.ok());
    BOOST_TEST_MESSAGE(cache.error().message);
    return cache.error().code;
  };
  const KvShape good{.layers = 1, .kv_heads = 1, .head_dim = 2, .blocks = 1};
  BOOST_TEST(KvCache::allocate(good).ok());
  for (int i = 0; i < 4; ++i) {
    KvShape bad = good;
    (i == 0 ? bad.layers : i == 1 ? bad.kv_heads : i == 2 ? bad.head_dim : bad.blocks) = 0;
    BOOST_TEST((code(bad) == ErrorCode::kInvalidArgument));
  }
  constexpr uint32_t kMax = UINT32_MAX;
  BOOST_TEST((code({kMax, kMax, kMax, kMax}) == ErrorCode::kInvalidArgument));
}

BOOST_AUTO_TEST_CASE(length_grows_with_what_was_filled_and_never_shrinks) {
  KvCache cache = make_cache();
  const SequenceId a{1};
  BOOST_TEST(cache.length(a) == 0U);
  cache.claim(a, Table{3});
  cache.filled(a, 40);
  cache.filled(a, 10);
  BOOST_TEST(cache.length(a) == 40U);
  cache.claim(a, Table{3, 5});
  BOOST_TEST(cache.length(a) == 40U);
  cache.filled(a, 100);
  BOOST_TEST(cache.length(a) == 100U);
  cache.claim(a, Table{3});  // a repeat of an older micro-batch
  BOOST_TEST(cache.length(a) == 100U);
  cache.forget(a);
  BOOST_TEST(cache.length(a) == 0U);
}

BOOST_AUTO_TEST_CASE(a_changed_block_table_keeps_only_what_lies_in_front_of_the_change) {
  KvCache cache = make_cache();
  const SequenceId a{1};
  cache.claim(a, Table{0, 1, 2});
  cache.filled(a, 150);
  BOOST_TEST(cache.length_under(a, Table{0, 1, 2, 3}) == 150U);
  BOOST_TEST(cache.length_under(a, Table{0, 1}) == 128U);
  BOOST_TEST(cache.length_under(a, Table{0, 7, 2}) == 64U);
  BOOST_TEST(cache.length_under(a, Table{7}) == 0U);
  BOOST_TEST(cache.length(a) == 150U);
  cache.claim(a, Table{0, 7, 2});
  BOOST_TEST(cache.length(a) == 64U);
}

BOOST_AUTO_TEST_CASE(a_block_claimed_by_another_sequence_makes_its_owner_forgotten) {
  KvCache cache = make_cache();
  const SequenceId a{1}, b{2}, c{3};
  cache.claim(a, Table{0, 1});
  cache.filled(a, 100);
  cache.claim(c, Table{4});
  cache.filled(c, 20);
  cache.claim(b, Table{1});
  BOOST_TEST(cache.length(a) == 0U);
  BOOST_TEST(cache.length(c) == 20U);
  cache.filled(b, 5);
  // What a gave up is nobody's: b keeps its block when a's other one is claimed.
  cache.claim(c, Table{4, 0});
  BOOST_TEST(cache.length(b) == 5U);
  BOOST_TEST(cache.length(c) == 20U);
  cache.clear();
  for (const SequenceId id : {a, b, c}) BOOST_TEST(cache.length(id) == 0U);
}

BOOST_AUTO_TEST_CASE(moving_a_cache_moves_its_memory) {
  KvCache first = make_cache();
  first.claim(SequenceId{9}, Table{2});
  first.filled(SequenceId{9}, 3);
  uint16_t* keys = first.layer(1).keys;
  KvCache second = std::move(first);
  BOOST_TEST(second.layer(1).keys == keys);
  BOOST_TEST(second.length(SequenceId{9}) == 3U);
  KvCache third = make_cache(2);
  third = std::move(second);
  BOOST_TEST(third.layer(1).keys == keys);
}

BOOST_AUTO_TEST_SUITE_END()

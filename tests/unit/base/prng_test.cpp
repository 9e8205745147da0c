#include "base/prng.h"

#include <array>
#include <boost/test/unit_test.hpp>
#include <set>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(prng)

BOOST_AUTO_TEST_CASE(is_philox_with_the_known_answers_of_its_authors) {
  // Random123's kat_vectors, philox4x32 with 10 rounds.
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  BOOST_TEST((philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              PhiloxCounter{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  BOOST_TEST((philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
              PhiloxCounter{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  BOOST_TEST(
      (philox4x32_10({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}) ==
       PhiloxCounter{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

BOOST_AUTO_TEST_CASE(a_draw_depends_on_seed_position_and_number_alone) {
  BOOST_TEST(philox_uniform(1, 2, 3) == philox_uniform(1, 2, 3));
  BOOST_TEST(philox_uniform(1, 2, 3) != philox_uniform(2, 2, 3));
  BOOST_TEST(philox_uniform(1, 2, 3) != philox_uniform(1, 3, 3));
  BOOST_TEST(philox_uniform(1, 2, 3) != philox_uniform(1, 2, 4));
  // The upper halves of seed and position count too.
  BOOST_TEST(philox_uniform(1, 2, 3) != philox_uniform(1 + (uint64_t{1} << 32), 2, 3));
  BOOST_TEST(philox_uniform(1, 2, 3) != philox_uniform(1, 2 + (uint64_t{1} << 32), 3));
}

BOOST_AUTO_TEST_CASE(is_uniform_in_zero_to_one_without_one) {
  // 16 buckets of 4096 draws each; five standard deviations of a binomial (n = 65536, p = 1/16) are
  // 310.
  std::array<int, 16> buckets{};
  for (uint64_t position = 0; position < 65536; ++position) {
    const float value = philox_uniform(99, position, 0);
    BOOST_REQUIRE(value >= 0.0F);
    BOOST_REQUIRE(value < 1.0F);
    ++buckets[static_cast<size_t>(value * 16)];
  }
  for (const int count : buckets) BOOST_TEST(std::abs(count - 4096) < 310);
}

BOOST_AUTO_TEST_CASE(random_numbers_of_the_system_are_never_zero_and_do_not_repeat) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 100; ++i) seen.insert(random_u64());
  BOOST_TEST(seen.size() == 100U);
  BOOST_TEST(!seen.contains(0));
}

BOOST_AUTO_TEST_SUITE_END()

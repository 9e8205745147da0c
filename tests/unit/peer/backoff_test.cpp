#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <set>

#include "transport/peer/dialler.h"

namespace troupe {

BOOST_AUTO_TEST_SUITE(peer_backoff)

BOOST_AUTO_TEST_CASE(pauses_double_up_to_the_longest_and_are_drawn_from_their_upper_half) {
  Backoff backoff(20ms, 1s, 7);
  // 20, 40, … 640 ms, then 1 s for ever.
  for (int attempt = 0; attempt < 40; ++attempt) {
    const Duration longest = attempt < 6 ? Duration(20ms) * (1 << attempt) : Duration(1s);
    const Duration pause = backoff.next();
    BOOST_TEST(pause.count() >= (longest / 2).count());
    BOOST_TEST(pause.count() <= longest.count());
  }
  backoff.reset();
  BOOST_TEST(backoff.next().count() <= Duration(20ms).count());
}

BOOST_AUTO_TEST_CASE(equal_seeds_draw_equal_pauses_and_different_seeds_spread) {
  std::set<int64_t> first_pauses;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Backoff one(20ms, 1s, seed);
    Backoff other(20ms, 1s, seed);
    for (int i = 0; i < 10; ++i) BOOST_TEST(one.next().count() == other.next().count());
    first_pauses.insert(Backoff(20ms, 1s, seed).next().count());
  }
  BOOST_TEST(first_pauses.size() > 40U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe

#include "base/metrics.h"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(a_counter_counts) {
  Counter counter;
  counter.add();
  counter.add(41);
  BOOST_TEST(counter.value() == 42U);
}

BOOST_AUTO_TEST_CASE(a_histogram_of_nothing_says_zero) {
  const LatencyHistogram histogram;
  BOOST_TEST(histogram.count() == 0U);
  BOOST_TEST((histogram.quantile(0.99) == Duration{0}));
}

BOOST_AUTO_TEST_CASE(quantiles_are_at_most_a_quarter_too_high_and_never_too_low) {
  LatencyHistogram histogram;
  for (int us = 1; us <= 1000; ++us) histogram.record(std::chrono::microseconds{us});
  BOOST_TEST(histogram.count() == 1000U);
  for (const double fraction : {0.01, 0.1, 0.5, 0.9, 0.99, 1.0}) {
    const double exact_us = fraction * 1000;
    const double seen_us = to_seconds(histogram.quantile(fraction)) * 1e6;
    BOOST_TEST(seen_us >= exact_us * 0.999, fraction << ": " << seen_us);
    BOOST_TEST(seen_us <= exact_us * 1.251, fraction << ": " << seen_us);
  }
  // 1 + 2 + … + 1000 µs
  BOOST_TEST((histogram.total() == std::chrono::microseconds{500'500}));
}

BOOST_AUTO_TEST_CASE(extremes_fall_into_the_outer_buckets) {
  LatencyHistogram histogram;
  histogram.record(Duration{-5});
  histogram.record(Duration{0});
  BOOST_TEST((histogram.quantile(1.0) == Duration{1us}));
  histogram.record(Duration::max());
  BOOST_TEST((histogram.quantile(1.0) > Duration{3600s}));
  // Fractions outside [0, 1] count as its ends.
  BOOST_TEST((histogram.quantile(-1) == Duration{1us}));
  BOOST_TEST((histogram.quantile(7) == histogram.quantile(1)));
}

BOOST_AUTO_TEST_SUITE_END()

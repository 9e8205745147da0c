#include "base/metrics.h"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {
constexpr double kGrowth = 1.25;
}

size_t LatencyHistogram::bucket_of(Duration duration) {
  const double microseconds = static_cast<double>(duration.count()) * 1e-3;
  if (microseconds <= 1.0) return 0;
  const double index = std::ceil(std::log(microseconds) / std::log(kGrowth));
  return std::min(static_cast<size_t>(index), kBuckets - 1);
}

Duration LatencyHistogram::upper_end(size_t bucket) {
  return Duration{static_cast<int64_t>(1e3 * std::pow(kGrowth, static_cast<double>(bucket)))};
}

void LatencyHistogram::record(Duration duration) {
  buckets_[bucket_of(duration)].add();
  count_.add();
  total_ns_.add(static_cast<uint64_t>(std::max<int64_t>(0, duration.count())));
}

void LatencyHistogram::clear() {
  for (Counter& bucket : buckets_) bucket.clear();
  count_.clear();
  total_ns_.clear();
}

Duration LatencyHistogram::quantile(double fraction) const {
  const uint64_t recorded = count();
  if (recorded == 0) return Duration{0};
  const double wanted = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(recorded);
  double seen = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += static_cast<double>(buckets_[bucket].value());
    if (seen >= wanted && buckets_[bucket].value() > 0) return upper_end(bucket);
  }
  return upper_end(kBuckets - 1);
}

}  // namespace troupe

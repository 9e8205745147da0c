// Counters and latency summaries that one thread writes and any thread reads. No registry: whoever
// owns a part owns its figures and reports them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace troupe {

class Counter {
 public:
  void add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void clear() { value_.store(0, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Durations in buckets that grow by a quarter from 1 µs to over an hour; quantiles are off by at
// most 25 %.
class LatencyHistogram {
 public:
  void record(Duration duration);
  void clear();  // by the writing thread
  uint64_t count() const { return count_.value(); }
  Duration total() const { return Duration{static_cast<int64_t>(total_ns_.value())}; }
  // The upper end of the bucket that holds the quantile in [0, 1]; zero if nothing was recorded.
  Duration quantile(double fraction) const;

 private:
  static constexpr size_t kBuckets = 100;
  static size_t bucket_of(Duration duration);
  static Duration upper_end(size_t bucket);

  std::array<Counter, kBuckets> buckets_;
  Counter count_, total_ns_;
};

}  // namespace troupe

// The pool runs every chunk once and returns when all are done, however its threads are held up.
#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace troupe::test {

namespace {

std::unique_ptr<ThreadPool> pool_of(size_t threads) {
  auto pool = ThreadPool::start(threads);
  BOOST_REQUIRE(pool.ok());
  return std::move(pool).value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(thread_pool)

BOOST_AUTO_TEST_CASE(every_chunk_runs_once) {
  for (const size_t threads : {1U, 2U, 3U, 8U}) {
    const auto pool = pool_of(threads);
    BOOST_TEST(pool->threads() == threads);
    for (const size_t chunks :
         {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{1000}, ThreadPool::kChunksMax}) {
      std::vector<int> runs(chunks);
      std::atomic<size_t> bad_thread{0};
      pool->run(chunks, [&](size_t chunk, size_t thread) {
        ++runs[chunk];
        if (thread >= threads) ++bad_thread;
      });
      BOOST_TEST(std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; }));
      BOOST_TEST(bad_thread.load() == 0U);
    }
  }
}

// What one job writes the next reads, on whatever threads: the fork and the join order memory.
BOOST_AUTO_TEST_CASE(many_tiny_jobs_follow_each_other) {
  for (const size_t threads : {2U, 3U}) {
    const auto pool = pool_of(threads);
    std::vector<size_t> counters(5);
    size_t expected = 0;
    for (size_t job = 0; job < 20000; ++job) {
      const size_t chunks = 1 + job % counters.size();
      pool->run(chunks, [&](size_t chunk, size_t) { counters[chunk] += chunk + job; });
      expected += chunks * job + chunks * (chunks - 1) / 2;
    }
    BOOST_TEST(std::accumulate(counters.begin(), counters.end(), size_t{0}) == expected);
  }
}

BOOST_AUTO_TEST_CASE(no_thread_index_is_used_twice_at_a_time) {
  const auto pool = pool_of(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  for (int job = 0; job < 200; ++job)
    pool->run(16, [&](size_t, size_t thread) {
      if (inside[thread].fetch_add(1) != 0) ++clashes;
      std::this_thread::yield();
      inside[thread].fetch_sub(1);
    });
  BOOST_TEST(clashes.load() == 0);
}

// A chunk that waits for another must be run by another thread: the work is shared, even with
// sleeping workers.
BOOST_AUTO_TEST_CASE(a_held_up_thread_leaves_the_rest_to_others) {
  const auto pool = pool_of(2);
  for (int job = 0; job < 20; ++job) {
    std::atomic<size_t> others{0};
    pool->run(10, [&](size_t chunk, size_t) {
      if (chunk != 0) {
        ++others;
        return;
      }
      while (others.load() < 9) std::this_thread::yield();
    });
    BOOST_TEST(others.load() == 9U);
  }
}

BOOST_AUTO_TEST_CASE(a_pool_ends_while_idle_fresh_or_just_used) {
  for (int i = 0; i < 50; ++i) {
    const auto fresh = pool_of(4);
    const auto used = pool_of(3);
    used->run(3, [](size_t, size_t) {});
  }
}

BOOST_AUTO_TEST_CASE(workers_that_sleep_wake_up) {
  const auto pool = pool_of(3);
  for (int i = 0; i < 5; ++i) {
    for (int yields = 0; yields < 20000; ++yields)
      std::this_thread::yield();  // long enough to fall asleep
    std::atomic<size_t> others{0};
    pool->run(3, [&](size_t, size_t) {
      ++others;
      while (others.load() < 3) std::this_thread::yield();  // returns only if all three take part
    });
    BOOST_TEST(others.load() == 3U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

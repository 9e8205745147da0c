#include "kernels/cpu/thread_pool.h"

#include <fmt/format.h>

#include <system_error>

#include "base/check.h"

namespace troupe {

namespace {

constexpr int kSpins = 2000;  // pauses of 40 to 140 cycles: 30 to 100 microseconds
constexpr int kYields = 20;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// Whether `done` came true while spinning and yielding.
template <class Done>
bool spin_then_yield(int spins, const Done& done) {
  for (int i = 0; i < spins; ++i) {
    if (done()) return true;
    pause_briefly();
  }
  for (int i = 0; i < kYields; ++i) {
    if (done()) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::start(size_t threads) {
  TROUPE_CHECK(threads >= 1, "the caller is one of the threads");
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  for (size_t thread = 1; thread < threads; ++thread) {
    try {
      pool->workers_.emplace_back([raw = pool.get(), thread] { raw->work(thread); });
    } catch (const std::system_error& error) {
      return Error{ErrorCode::kUnavailable, fmt::format("kernel thread {} of {} did not start: {}",
                                                        thread + 1, threads, error.what())};
    }
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(size_t chunks, ErasedBody body, const void* context) {
  TROUPE_CHECK(chunks <= kChunksMax, "a job has at most kChunksMax chunks");
  if (workers_.empty() || chunks <= 1) {
    for (size_t chunk = 0; chunk < chunks; ++chunk) body(context, chunk, 0);
    return;
  }
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  ticket_.store(uint64_t{generation} << 32 | uint64_t{chunks} << 16, std::memory_order_release);
  generation_.store(generation);  // sequentially consistent with sleepers_: no wake-up gets lost
  if (sleepers_.load() > 0) generation_.notify_all();
  claim_all(0);
  wait_for_chunks(static_cast<uint32_t>(chunks));
}

// Runs chunks until none is left to claim; returns the generation it last saw.
uint32_t ThreadPool::claim_all(size_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t chunks = (ticket >> 16) & 0xFFFF, next = ticket & 0xFFFF;
    if (next >= chunks) return static_cast<uint32_t>(ticket >> 32);
    const ErasedBody body = body_.load(std::memory_order_relaxed);
    const void* context = context_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    body(context, next, thread);
    if (done_.fetch_add(1) + 1 == chunks && caller_sleeps_.load()) done_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::wait_for_chunks(uint32_t chunks) {
  const auto complete = [&] { return done_.load(std::memory_order_acquire) == chunks; };
  if (spin_then_yield(kSpins / 2, complete)) return;
  caller_sleeps_.store(true);
  for (uint32_t done = done_.load(); done != chunks; done = done_.load()) done_.wait(done);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

void ThreadPool::work(size_t thread) {
  while (!stopping_.load(std::memory_order_relaxed)) wait_for_job(claim_all(thread));
}

void ThreadPool::wait_for_job(uint32_t seen) {
  const auto changed = [&] { return generation_.load(std::memory_order_acquire) != seen; };
  if (spin_then_yield(kSpins, changed)) return;
  sleepers_.fetch_add(1);
  while (generation_.load() == seen) generation_.wait(seen);
  sleepers_.fetch_sub(1);
}

}  // namespace troupe

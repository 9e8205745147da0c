// A fork-join pool for one caller, who is one of its threads. A job is a number of chunks that
// threads claim one by one, so that a thread which the system holds up takes fewer of them, and a
// thread that has claimed nothing is not waited for: with a busy foreign thread on one core the
// pool loses that share and no more.
//
// Idle workers spin for some tens of microseconds (the gap between two operators), then yield, then
// sleep. A caller whose last chunks run elsewhere does the same: a sleeping caller leaves its core
// to a worker that lost its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"

namespace troupe {

class ThreadPool {
 public:
  static constexpr size_t kChunksMax = 0xFFFF;

  // `threads` counts the caller: 1 starts none. Errors: kUnavailable, the system gives no more
  // threads.
  static Result<std::unique_ptr<ThreadPool>> start(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls body(chunk, thread) for every chunk below `chunks` (at most kChunksMax), each once, and
  // returns when all are done; thread is below threads(), and no two calls run on one thread index
  // at a time. One caller at a time; not from a body.
  template <class Body>
  void run(size_t chunks, const Body& body) {
    run_erased(chunks, &call<Body>, &body);
  }

 private:
  using ErasedBody = void (*)(const void* body, size_t chunk, size_t thread);
  template <class Body>
  static void call(const void* body, size_t chunk, size_t thread) {
    (*static_cast<const Body*>(body))(chunk, thread);
  }

  ThreadPool() = default;
  void run_erased(size_t chunks, ErasedBody body, const void* context);
  void work(size_t thread);
  uint32_t claim_all(size_t thread);
  void wait_for_job(uint32_t seen);
  void wait_for_chunks(uint32_t chunks);

  // The job at hand: generation << 32 | chunks << 16 | next chunk. A claim is one compare-and-swap
  // on all of it, so a claim succeeds only within the job whose bounds were read; body_ and
  // context_ belong to that job, because they are not written again before all its chunks are done.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  std::atomic<ErasedBody> body_{nullptr};
  std::atomic<const void*> context_{nullptr};
  alignas(64) std::atomic<uint32_t> done_{0};  // chunks of this job that have been run
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<uint32_t> generation_{0};  // what sleeping workers watch
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace troupe

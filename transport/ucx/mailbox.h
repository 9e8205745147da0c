// How other threads talk to the progress thread: a bounded-by-credit queue of things to do and a
// descriptor that ends its sleep. A template, so that the queue does not know what it carries.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"

namespace troupe::ucx {

template <class Item>
class Mailbox {
 public:
  Mailbox() : wake_descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    TROUPE_CHECK(wake_descriptor_ >= 0, "the process has a descriptor left for its transport");
  }
  ~Mailbox() { ::close(wake_descriptor_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread. What is pushed after close() is dropped.
  void push(Item item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;  // the item dies unlocked, with the argument
      items_.push_back(std::move(item));
    }
    wake();
  }
  void close() {
    std::deque<Item> dropped;
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(items_);
  }
  void wake() {
    if (!asleep_.load()) return;
    const uint64_t one = 1;
    // Fails only when the counter is full: then it wakes anyway.
    [[maybe_unused]] const ssize_t written = write(wake_descriptor_, &one, sizeof one);
  }

  // The progress thread only, from here on. Appends up to `count_max` items.
  void take(std::vector<Item>& out, size_t count_max) {
    const std::lock_guard lock(mutex_);
    for (; count_max > 0 && !items_.empty(); --count_max) {
      out.push_back(std::move(items_.front()));
      items_.pop_front();
    }
  }
  // True if the thread may sleep on wake_descriptor(): from now on every push writes to it.
  bool fall_asleep() {
    asleep_.store(true);
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return true;
    asleep_.store(false);
    return false;
  }
  void wake_up() {
    asleep_.store(false);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_descriptor_, &count, sizeof count);
  }
  int wake_descriptor() const { return wake_descriptor_; }

 private:
  const int wake_descriptor_;
  std::mutex mutex_;
  std::deque<Item> items_;
  bool closed_ = false;
  std::atomic<bool> asleep_{false};
};

}  // namespace troupe::ucx

#include "transport/ucx/memory.h"

#include <bit>
#include <new>

namespace troupe::ucx {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kCapacityMin = 4096;

// Powers of two and the steps halfway between: at most a third is unused, and unused pages cost
// nothing.
size_t capacity_for(size_t size) {
  if (size <= kCapacityMin) return kCapacityMin;
  const size_t power = std::bit_ceil(size);
  return size <= power / 4 * 3 ? power / 4 * 3 : power;
}

void free_memory(std::byte* memory) {
  ::operator delete(memory, kAlignment);
}

}  // namespace

std::shared_ptr<BufferPool> BufferPool::create(size_t kept_bytes_max) {
  return std::shared_ptr<BufferPool>(new BufferPool(kept_bytes_max));
}

BufferPool::~BufferPool() {
  for (auto& [capacity, buffers] : free_)
    for (std::byte* memory : buffers) free_memory(memory);
}

std::shared_ptr<std::byte> BufferPool::take(size_t size) {
  const size_t capacity = capacity_for(size);
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = free_.find(capacity);
    if (found != free_.end() && !found->second.empty()) {
      memory = found->second.back();
      found->second.pop_back();
      kept_bytes_ -= capacity;
    }
  }
  if (memory == nullptr)
    memory = static_cast<std::byte*>(::operator new(capacity, kAlignment, std::nothrow));
  if (memory == nullptr) return nullptr;
  return {memory, [pool = shared_from_this(), capacity](std::byte* released) {
            pool->give_back(released, capacity);
          }};
}

void BufferPool::give_back(std::byte* memory, size_t capacity) {
  {
    const std::lock_guard lock(mutex_);
    if (kept_bytes_ + capacity <= kept_bytes_max_) {
      free_[capacity].push_back(memory);
      kept_bytes_ += capacity;
      return;
    }
  }
  free_memory(memory);
}

size_t BufferPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace troupe::ucx

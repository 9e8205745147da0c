// Pooled memory for what arrives. A fresh buffer costs as much as the transport itself (page
// faults: 2 GB/s), so released ones are kept, by size class, up to a limit. Any thread may release.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::ucx {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps up to `kept_bytes_max` of released buffers; more goes back to the system.
  static std::shared_ptr<BufferPool> create(size_t kept_bytes_max);
  ~BufferPool();

  // At least `size` bytes, 64-byte aligned, contents undefined; nothing if the system has no
  // memory. Goes back to the pool with its last owner. The pool lives as long as its buffers.
  std::shared_ptr<std::byte> take(size_t size);

  size_t kept_bytes() const;

 private:
  explicit BufferPool(size_t kept_bytes_max) : kept_bytes_max_(kept_bytes_max) {}
  void give_back(std::byte* memory, size_t capacity);

  const size_t kept_bytes_max_;
  mutable std::mutex mutex_;
  size_t kept_bytes_ = 0;
  std::map<size_t, std::vector<std::byte*>> free_;  // by capacity
};

}  // namespace troupe::ucx

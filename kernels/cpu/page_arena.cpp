#include "kernels/cpu/page_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlabBytes = size_t{32} << 20;  // only what is touched takes memory
constexpr size_t kAlignment = 64;

size_t round_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// `size` bytes, a multiple of kHugePage, aligned to it.
Result<std::shared_ptr<std::byte>> map_slab(size_t size) {
  const size_t mapped = size + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} bytes for weights: {}", mapped, std::strerror(errno))};
  auto* start = static_cast<std::byte*>(memory);
  const size_t skip =
      round_up(reinterpret_cast<size_t>(start), kHugePage) - reinterpret_cast<size_t>(start);
  // A wish: without transparent huge pages the memory works as well, only slower.
  (void)madvise(start + skip, size, MADV_HUGEPAGE);
  return std::shared_ptr<std::byte>(start + skip,
                                    [start, mapped](std::byte*) { munmap(start, mapped); });
}

}  // namespace

Result<std::shared_ptr<std::byte>> PageArena::allocate(size_t bytes) {
  const size_t needed = round_up(std::max<size_t>(bytes, 1), kAlignment);
  if (slab_ == nullptr || size_ - used_ < needed) {
    const size_t size = round_up(std::max(needed, kSlabBytes), kHugePage);
    TROUPE_TRY(slab_, map_slab(size));
    size_ = size;
    used_ = 0;
  }
  std::shared_ptr<std::byte> memory(slab_, slab_.get() + used_);
  used_ += needed;
  return memory;
}

}  // namespace troupe

#include "models/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace troupe {

Result<uint64_t> KvCache::check(const KvShape& shape) {
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim == 0 || shape.blocks == 0)
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a kv cache of {} layers, {} kv heads, head dimension {} and {} blocks; "
                    "each must be at least 1",
                    shape.layers, shape.kv_heads, shape.head_dim, shape.blocks)};
  // Each factor is below 2^32, so the products are taken in 128 bits and compared once.
  using Wide = unsigned __int128;
  const Wide wide = Wide{shape.layers} * 2 * shape.blocks * kKvBlockTokens * sizeof(uint16_t) *
                    (Wide{shape.kv_heads} * shape.head_dim);
  if (wide > kBytesMax)
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a kv cache of {} blocks for {} layers takes more than the limit of {} bytes",
                    shape.blocks, shape.layers, kBytesMax)};
  if (wide / (Wide{shape.blocks} * kKvBlockTokens) > kRowBytesMax)
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a position of {} layers, {} kv heads and head dimension {} takes more "
                    "than the limit of {} bytes",
                    shape.layers, shape.kv_heads, shape.head_dim, kRowBytesMax)};
  return static_cast<uint64_t>(wide);
}

Result<KvCache> KvCache::open(const KvShape& shape, const KeptMemory& kept) {
  TROUPE_TRY(const uint64_t bytes, check(shape));
  const uint64_t mapped = bytes + KvProofs::bytes(shape.blocks);
  // Sparse: pages that nobody wrote take no memory.
  void* memory = MAP_FAILED;
  if (::ftruncate(kept.descriptor, static_cast<off_t>(mapped)) == 0)
    memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    kept.descriptor, 0);
  if (memory == MAP_FAILED)
    return Error{ErrorCode::kIo, fmt::format("kept memory of {} bytes for a kv cache: {}", mapped,
                                             std::strerror(errno))};
  ::madvise(memory, mapped, MADV_HUGEPAGE);
  KvCache cache(shape, static_cast<std::byte*>(memory), bytes);
  cache.mapped_ = mapped;
  cache.proofs_ = KvProofs(cache.memory_ + bytes, shape.blocks, kept.key);
  cache.row_.resize(cache.row_bytes());
  for (const KvProofs::Claim& claim : cache.proofs_.claims()) cache.take_over(claim);
  return cache;
}

// As many rows from the start on as prove themselves.
void KvCache::take_over(const KvProofs::Claim& claim) {
  Held held{0, claim.table};
  for (const uint32_t block : claim.table) {
    uint32_t row = 0;
    for (; row < kKvBlockTokens; ++row) {
      read_rows(claim.table, held.length, row_);
      if (!proofs_.proves(block, row, row_)) break;
      ++held.length;
    }
    if (row == kKvBlockTokens) continue;
    blocks_rejected_ += proofs_.touched(block, row) ? 1 : 0;
    break;
  }
  held.table.resize((held.length + kKvBlockTokens - 1) / kKvBlockTokens);
  if (held.length == 0) return;
  for (const uint32_t block : held.table) owners_[block] = claim.sequence;
  held_[claim.sequence] = std::move(held);
}

Result<KvCache> KvCache::allocate(const KvShape& shape) {
  TROUPE_TRY(const uint64_t bytes, check(shape));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("a kv cache of {} bytes: {}", bytes, std::strerror(errno))};
  // Advice only: a kernel without transparent huge pages reads more slowly, nothing else.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return KvCache(shape, static_cast<std::byte*>(memory), bytes);
}

KvCache::KvCache(const KvShape& shape, std::byte* memory, uint64_t bytes)
    : shape_(shape), memory_(memory), bytes_(bytes), owners_(shape.blocks), mapped_(bytes) {}

KvCache::KvCache(KvCache&& other) noexcept
    : shape_(other.shape_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      held_(std::move(other.held_)),
      owners_(std::move(other.owners_)),
      proofs_(std::exchange(other.proofs_, {})),
      mapped_(std::exchange(other.mapped_, 0)),
      blocks_rejected_(other.blocks_rejected_),
      row_(std::move(other.row_)) {}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(held_, other.held_);
  std::swap(owners_, other.owners_);
  std::swap(proofs_, other.proofs_);
  std::swap(mapped_, other.mapped_);
  std::swap(blocks_rejected_, other.blocks_rejected_);
  std::swap(row_, other.row_);
  return *this;
}

KvCache::~KvCache() {
  if (memory_ != nullptr) ::munmap(memory_, mapped_);
}

KvLayer KvCache::layer(uint32_t index) const {
  TROUPE_CHECK(index < shape_.layers, "a layer of this stage");
  const uint64_t half = bytes_ / shape_.layers / 2;
  std::byte* start = memory_ + index * 2 * half;
  return KvLayer{.keys = reinterpret_cast<uint16_t*>(start),
                 .values = reinterpret_cast<uint16_t*>(start + half),
                 .blocks = shape_.blocks,
                 .kv_heads = shape_.kv_heads,
                 .head_dim = shape_.head_dim};
}

uint32_t KvCache::length(SequenceId sequence) const {
  const auto found = held_.find(sequence);
  return found == held_.end() ? 0 : found->second.length;
}

uint32_t KvCache::length_under(SequenceId sequence, std::span<const uint32_t> table) const {
  const auto found = held_.find(sequence);
  if (found == held_.end()) return 0;
  const Held& held = found->second;
  const size_t common = std::min(held.table.size(), table.size());
  const auto differs = std::mismatch(table.begin(), table.begin() + static_cast<ptrdiff_t>(common),
                                     held.table.begin());
  const auto same = static_cast<size_t>(differs.first - table.begin());
  return static_cast<uint32_t>(std::min<uint64_t>(held.length, uint64_t{same} * kKvBlockTokens));
}

std::vector<SequenceHolding> KvCache::holdings() const {
  std::vector<SequenceHolding> all;
  for (const auto& [sequence, held] : held_)
    if (held.length > 0) all.push_back({sequence, held.length, held.table});
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return all;
}

namespace {

// Where a position's keys and values start in a layer. Of each kv head, a position's values lie one
// behind the other, its keys kKvBlockTokens apart.
struct RowStart {
  uint16_t* keys;
  uint16_t* values;
};

RowStart row_start(const KvLayer& layer, std::span<const uint32_t> table, uint32_t position) {
  const size_t index = position / kKvBlockTokens, slot = position % kKvBlockTokens;
  TROUPE_CHECK(index < table.size() && table[index] < layer.blocks, "blocks cover the rows");
  const size_t block = table[index] * layer.kv_heads * layer.head_dim * kKvBlockTokens;
  return {layer.keys + block + slot, layer.values + block + slot * layer.head_dim};
}

}  // namespace

void KvCache::read_rows(std::span<const uint32_t> table, uint32_t position,
                        std::span<std::byte> rows) const {
  const size_t heads = shape_.kv_heads, dims = shape_.head_dim;
  const size_t count = rows.size() / row_bytes();
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    const KvLayer of_layer = layer(l);
    for (size_t r = 0; r < count; ++r) {
      const RowStart from = row_start(of_layer, table, position + static_cast<uint32_t>(r));
      std::byte* out = rows.data() + r * row_bytes() + size_t{l} * 2 * half_row_bytes();
      for (size_t i = 0; i < heads * dims; ++i, out += sizeof(uint16_t))
        std::memcpy(out, from.keys + i * kKvBlockTokens, sizeof(uint16_t));
      for (size_t h = 0; h < heads; ++h, out += dims * sizeof(uint16_t))
        std::memcpy(out, from.values + h * kKvBlockTokens * dims, dims * sizeof(uint16_t));
    }
  }
}

std::optional<uint32_t> KvCache::damaged_row(std::span<const uint32_t> table, uint32_t position,
                                             ByteSpan rows) const {
  for (size_t start = 0; proofs_ && start < rows.size(); start += row_bytes(), ++position)
    if (!proofs_.proves(table[position / kKvBlockTokens], position % kKvBlockTokens,
                        rows.subspan(start, row_bytes())))
      return position;
  return std::nullopt;
}

void KvCache::write_rows(std::span<const uint32_t> table, uint32_t position, ByteSpan rows) {
  const size_t heads = shape_.kv_heads, dims = shape_.head_dim;
  const size_t count = rows.size() / row_bytes();
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    const KvLayer of_layer = layer(l);
    for (size_t r = 0; r < count; ++r) {
      const RowStart to = row_start(of_layer, table, position + static_cast<uint32_t>(r));
      const std::byte* in = rows.data() + r * row_bytes() + size_t{l} * 2 * half_row_bytes();
      for (size_t i = 0; i < heads * dims; ++i, in += sizeof(uint16_t))
        std::memcpy(to.keys + i * kKvBlockTokens, in, sizeof(uint16_t));
      for (size_t h = 0; h < heads; ++h, in += dims * sizeof(uint16_t))
        std::memcpy(to.values + h * kKvBlockTokens * dims, in, dims * sizeof(uint16_t));
    }
  }
}

void KvCache::claim(SequenceId sequence, std::span<const uint32_t> table) {
  // A shorter table that agrees is a repeat of an older micro-batch: what lies behind it is still
  // held.
  const auto found = held_.find(sequence);
  if (found != held_.end()) {
    const std::vector<uint32_t>& known = found->second.table;
    if (table.size() <= known.size() && std::equal(table.begin(), table.end(), known.begin()))
      return;
  }
  const uint32_t kept = length_under(sequence, table);
  for (const uint32_t block : table) {
    TROUPE_CHECK(block < owners_.size(), "the stage checked the block table");
    const SequenceId owner = owners_[block];
    if (owner && owner != sequence) forget(owner);
  }
  if (found != held_.end())
    for (const uint32_t block : found->second.table)
      if (owners_[block] == sequence) owners_[block] = SequenceId{};
  for (uint32_t index = 0; index < table.size(); ++index) {
    owners_[table[index]] = sequence;
    proofs_.own(table[index], sequence, index);
  }
  held_[sequence] = Held{kept, {table.begin(), table.end()}};
}

void KvCache::filled(SequenceId sequence, uint32_t end) {
  const auto found = held_.find(sequence);
  TROUPE_CHECK(found != held_.end(), "rows are written after claim()");
  TROUPE_CHECK(end <= found->second.table.size() * kKvBlockTokens, "blocks cover the rows");
  Held& held = found->second;
  for (uint32_t position = held.length; proofs_ && position < end; ++position) {
    read_rows(held.table, position, row_);
    proofs_.commit(held.table[position / kKvBlockTokens], position % kKvBlockTokens, row_);
  }
  held.length = std::max(held.length, end);
}

void KvCache::forget(SequenceId sequence) {
  const auto found = held_.find(sequence);
  if (found == held_.end()) return;
  for (const uint32_t block : found->second.table) {
    if (owners_[block] != sequence) continue;
    owners_[block] = SequenceId{};
    proofs_.disown(block);
  }
  held_.erase(found);
}

void KvCache::clear() {
  while (!held_.empty()) forget(held_.begin()->first);
}

}  // namespace troupe

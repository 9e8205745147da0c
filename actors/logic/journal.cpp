#include "actors/logic/journal.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace troupe {

Journal::Journal(size_t bytes_max, size_t row_bytes)
    : bytes_max_(bytes_max), row_bytes_(row_bytes) {
  TROUPE_CHECK(row_bytes > 0, "a row has bytes");
}

void Journal::append(SequenceId sequence, uint32_t position, std::span<const std::byte> rows) {
  TROUPE_CHECK(rows.size() % row_bytes_ == 0, "whole rows");
  const auto count = static_cast<uint32_t>(rows.size() / row_bytes_);
  Entry& entry = entries_[sequence];
  if (entry.first == entry.end || position > entry.end || position + count < entry.first) {
    for (const auto& chunk : entry.chunks) bytes_ -= chunk.size();
    entry = Entry{position, position, {}};
  }
  if (position + count <= entry.end) return;  // a repeat
  auto fresh = rows.subspan(size_t{entry.end - position} * row_bytes_);
  while (!fresh.empty()) {
    if (entry.chunks.empty() || entry.chunks.back().size() == kChunkRows * row_bytes_)
      entry.chunks.emplace_back().reserve(kChunkRows * row_bytes_);
    std::vector<std::byte>& last = entry.chunks.back();
    const size_t taken = std::min(fresh.size(), kChunkRows * row_bytes_ - last.size());
    last.insert(last.end(), fresh.begin(), fresh.begin() + static_cast<ptrdiff_t>(taken));
    entry.end += static_cast<uint32_t>(taken / row_bytes_);
    bytes_ += taken;
    fresh = fresh.subspan(taken);
  }
  make_room();
}

// The longest journal gives way first: it is the one whose end is most likely to be enough.
void Journal::make_room() {
  while (bytes_ > bytes_max_) {
    const auto longest =
        std::max_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.chunks.size() < b.second.chunks.size();
        });
    drop_first_chunk(longest->second);
    ++chunks_dropped_;
    if (longest->second.chunks.empty()) entries_.erase(longest);
  }
}

void Journal::drop_first_chunk(Entry& entry) {
  const size_t bytes = entry.chunks.front().size();
  bytes_ -= bytes;
  entry.first += static_cast<uint32_t>(bytes / row_bytes_);
  entry.chunks.pop_front();
}

bool Journal::read(SequenceId sequence, uint32_t position, uint32_t rows,
                   std::span<std::byte> out) const {
  TROUPE_CHECK(out.size() == size_t{rows} * row_bytes_, "room for the rows that are asked for");
  const auto found = entries_.find(sequence);
  if (found == entries_.end()) return false;
  const Entry& entry = found->second;
  if (position < entry.first || uint64_t{position} + rows > entry.end) return false;
  for (uint32_t done = 0; done < rows;) {
    const uint32_t index = position + done - entry.first;
    const auto& chunk = entry.chunks[index / kChunkRows];
    const uint32_t in_chunk = index % kChunkRows;
    const uint32_t taken = std::min(rows - done, kChunkRows - in_chunk);
    std::memcpy(out.data() + done * row_bytes_, chunk.data() + in_chunk * row_bytes_,
                taken * row_bytes_);
    done += taken;
  }
  return true;
}

Journal::Range Journal::range(SequenceId sequence) const {
  const auto found = entries_.find(sequence);
  return found == entries_.end() ? Range{} : Range{found->second.first, found->second.end};
}

void Journal::trim(SequenceId sequence, uint32_t watermark) {
  const auto found = entries_.find(sequence);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  // Whole chunks only; the last one stays, so that the journal's end is not forgotten.
  while (entry.chunks.size() > 1 && entry.first + kChunkRows <= watermark) drop_first_chunk(entry);
}

void Journal::forget(SequenceId sequence) {
  const auto found = entries_.find(sequence);
  if (found == entries_.end()) return;
  for (const auto& chunk : found->second.chunks) bytes_ -= chunk.size();
  entries_.erase(found);
}

void Journal::clear() {
  entries_.clear();
  bytes_ = 0;
}

}  // namespace troupe

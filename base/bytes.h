// Bytes: views, a bounds-checked little-endian reader for files and wires, and a shared buffer for
// payloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace troupe {

using ByteSpan = std::span<const std::byte>;

inline ByteSpan as_byte_span(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads little-endian values from the front of a span and never past its end.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  template <class T>
  Result<T> read() {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return short_of(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  // A view into the underlying bytes; valid as long as they are.
  Result<ByteSpan> read_bytes(uint64_t count) {
    if (remaining() < count) return short_of(count);
    const ByteSpan view = bytes_.subspan(offset_, static_cast<size_t>(count));
    offset_ += static_cast<size_t>(count);
    return view;
  }

 private:
  Error short_of(uint64_t wanted) const {
    return Error{ErrorCode::kInvalidFile, "ends at byte " + std::to_string(bytes_.size()) +
                                              " where " + std::to_string(wanted) +
                                              " more bytes were announced at byte " +
                                              std::to_string(offset_)};
  }

  ByteSpan bytes_;
  size_t offset_ = 0;
};

// A payload that several owners read: written by its maker before it is shared, never after.
// 64-byte aligned, so that vector kernels may read it in place.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  static SharedBuffer allocate(size_t size);
  // Wraps memory that something else keeps alive (a pooled receive buffer); `owner` frees or
  // returns it.
  static SharedBuffer wrap(std::shared_ptr<std::byte> owner, size_t size) {
    SharedBuffer buffer;
    buffer.data_ = std::move(owner);
    buffer.size_ = size;
    return buffer;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* mutable_data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  ByteSpan view() const { return {data_.get(), size_}; }

  // Elements of a trivially copyable type; a trailing partial element is not shown.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), size_ / sizeof(T)};
  }
  template <class T>
  std::span<T> as_mutable() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  std::shared_ptr<std::byte> data_;
  size_t size_ = 0;
};

inline SharedBuffer SharedBuffer::allocate(size_t size) {
  constexpr std::align_val_t kAlignment{64};
  auto* memory = static_cast<std::byte*>(::operator new(size == 0 ? 1 : size, kAlignment));
  return wrap({memory, [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); }}, size);
}

}  // namespace troupe

// Cap'n Proto messages in and out of flat bytes, for bytes that nobody vouches for. The segment
// table is checked before any reader of the library sees it (an absurd segment count makes version
// 0.9.2 write past a buffer), the words are copied to where they are aligned, and a message may be
// traversed about once, so that pointers that all lead to one place cannot make little into much.
// The library's exceptions end here.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

namespace troupe {

inline constexpr uint32_t kSchemaSegmentsMax = 64;

// kInvalidFrame unless the bytes are a segment table and exactly the segments it announces.
inline Result<void> check_segment_table(ByteSpan bytes) {
  const auto refuse = [](std::string why) {
    return Error{ErrorCode::kInvalidFrame, std::move(why)};
  };
  if (bytes.size() % sizeof(capnp::word) != 0 || bytes.empty())
    return refuse(fmt::format("message of {} bytes, not a positive multiple of 8", bytes.size()));
  const auto entry = [bytes](size_t index) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
    return value;
  };
  const uint64_t segments = uint64_t{entry(0)} + 1;
  if (segments > kSchemaSegmentsMax)
    return refuse(fmt::format("{} segments, limit {}", segments, kSchemaSegmentsMax));
  const uint64_t table_words = segments / 2 + 1;
  if (table_words * sizeof(capnp::word) > bytes.size())
    return refuse(fmt::format("{} segments announced in {} bytes", segments, bytes.size()));
  uint64_t words = table_words;
  for (size_t i = 1; i <= segments; ++i) words += entry(i);
  if (words * sizeof(capnp::word) != bytes.size())
    return refuse(fmt::format("segments of {} bytes announced in a message of {}",
                              words * sizeof(capnp::word), bytes.size()));
  return {};
}

// What `read(Reader)` makes of the root; it returns a Result and may use the library freely.
template <class Schema, class Read>
auto read_schema(ByteSpan bytes, Read read)
    -> decltype(read(std::declval<typename Schema::Reader>())) {
  TROUPE_TRY_VOID(check_segment_table(bytes));
  try {
    kj::Array<capnp::word> words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = words.size() + 64;
    options.nestingLimit = 8;
    capnp::FlatArrayMessageReader reader(words, options);
    return read(reader.getRoot<Schema>());
  } catch (const kj::Exception& exception) {
    return Error{ErrorCode::kInvalidFrame,
                 fmt::format("malformed message: {}", exception.getDescription().cStr())};
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kInvalidFrame, fmt::format("malformed message: {}", exception.what())};
  }
}

// The bytes of the message that `write(Builder)` fills in; kInvalidArgument above `bytes_max`.
template <class Schema, class Write>
Result<SharedBuffer> write_schema(size_t bytes_max, Write write) {
  try {
    capnp::MallocMessageBuilder builder;
    write(builder.initRoot<Schema>());
    const size_t size = capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word);
    if (size > bytes_max)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("message of {} bytes, limit {}", size, bytes_max)};
    SharedBuffer buffer = SharedBuffer::allocate(size);
    kj::ArrayOutputStream output(
        kj::arrayPtr(reinterpret_cast<kj::byte*>(buffer.mutable_data()), size));
    capnp::writeMessage(output, builder);
    return buffer;
  } catch (const kj::Exception& exception) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("cannot be written: {}", exception.getDescription().cStr())};
  }
}

}  // namespace troupe

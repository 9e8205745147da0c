// Checks a Cap'n Proto RPC byte stream before the library parses it, because version 0.9 believes
// its peer:
// - a segment count of 0xFFFFFFFF overflows the heap with the first eight bytes (advisory
// 2026-03-12-0);
// - its message limit is fixed for a connection's life, so a stranger gets as much as a user;
// - the results of calls are kept until the caller says `finish`, so a caller that never says it
// hoards memory. So segment tables are checked here, the limits are low until login and raised
// afterwards, and questions that were asked and not finished are counted. No I/O and no KJ: bytes
// in, verdict out.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace troupe::rpc {

struct FrameLimits {
  uint64_t words_max = 0;      // of one message, in units of 8 bytes, without its segment table
  uint64_t questions_max = 0;  // calls and bootstraps the peer may have open
  uint64_t bytes_max = 0;      // of all messages since the connection began; 0: no limit
};

class FrameCheck {
 public:
  static constexpr uint32_t kSegmentsMax = 64;  // of one message; 1 to 3 are usual

  explicit FrameCheck(FrameLimits limits) : limits_(limits) {}

  void set_limits(FrameLimits limits) { limits_ = limits; }

  // The next bytes of the stream, however they were cut. kInvalidFrame: drop the connection;
  // everything up to the offending segment table was fine, nothing after it may be parsed.
  Result<void> feed(ByteSpan bytes);

  // True between the first byte of a message and its last.
  bool inside_frame() const { return table_filled_ > 0 || body_left_ > 0; }
  uint64_t open_questions() const { return open_questions_; }

 private:
  uint32_t table_word(size_t index) const;
  Result<void> finish_table();
  Result<void> classify();

  FrameLimits limits_;
  uint64_t bytes_seen_ = 0;
  uint64_t open_questions_ = 0;
  uint64_t body_left_ = 0;  // bytes of the current message still to come
  // The segment table that is being read: count - 1, the sizes, padding to whole words.
  std::array<std::byte, 8 + 4 * kSegmentsMax> table_{};
  size_t table_filled_ = 0;
  size_t table_size_ = 0;  // 0 until the count is known
  // The first two words of a message: the root pointer, and the data of the root, which says its
  // kind.
  std::array<std::byte, 16> head_{};
  size_t head_filled_ = 0;
  size_t head_size_ = 0;
};

}  // namespace troupe::rpc

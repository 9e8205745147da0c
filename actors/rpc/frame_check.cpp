#include "actors/rpc/frame_check.h"

#include <capnp/rpc.capnp.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace troupe::rpc {
namespace {

Error bad(std::string message) {
  return Error{ErrorCode::kInvalidFrame, std::move(message)};
}

template <class T>
T little_endian(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace

uint32_t FrameCheck::table_word(size_t index) const {
  return little_endian<uint32_t>(table_.data() + 4 * index);
}

Result<void> FrameCheck::feed(ByteSpan bytes) {
  bytes_seen_ += bytes.size();
  if (limits_.bytes_max > 0 && bytes_seen_ > limits_.bytes_max)
    return bad(fmt::format("{} bytes before login, limit {}", bytes_seen_, limits_.bytes_max));
  while (!bytes.empty()) {
    if (body_left_ > 0) {
      const size_t taken = static_cast<size_t>(std::min<uint64_t>(bytes.size(), body_left_));
      const size_t head_taken = std::min(taken, head_size_ - head_filled_);
      std::copy_n(bytes.begin(), head_taken, head_.begin() + static_cast<ptrdiff_t>(head_filled_));
      head_filled_ += head_taken;
      body_left_ -= taken;
      bytes = bytes.subspan(taken);
      if (head_taken > 0 && head_filled_ == head_size_) TROUPE_TRY_VOID(classify());
      continue;
    }
    table_[table_filled_++] = bytes.front();
    bytes = bytes.subspan(1);
    if (table_filled_ == 4) {
      const uint32_t count_less_one = table_word(0);
      if (count_less_one >= kSegmentsMax)
        return bad(fmt::format("a message of {} segments, limit {}", uint64_t{count_less_one} + 1,
                               kSegmentsMax));
      table_size_ = (4 + 4 * (size_t{count_less_one} + 1) + 7) / 8 * 8;
    }
    if (table_filled_ >= 4 && table_filled_ == table_size_) TROUPE_TRY_VOID(finish_table());
  }
  return {};
}

Result<void> FrameCheck::finish_table() {
  uint64_t words = 0;
  for (size_t i = 0; i <= table_word(0); ++i) words += table_word(1 + i);
  if (words > limits_.words_max)
    return bad(fmt::format("a message of {} bytes, limit {}", words * 8, limits_.words_max * 8));
  if (words == 0) return bad("a message without a root");
  body_left_ = words * 8;
  head_size_ = std::min<size_t>(head_.size(), static_cast<size_t>(body_left_));
  head_filled_ = 0;
  table_filled_ = 0;
  table_size_ = 0;
  return {};
}

// What does not have the usual layout (root pointer, then at once the root's data) counts as a
// question: it may be one, and no known implementation writes anything else.
Result<void> FrameCheck::classify() {
  const auto root = little_endian<uint64_t>(head_.data());
  const bool usual =
      head_size_ == head_.size() && (root & 0xFFFFFFFFU) == 0 && ((root >> 32) & 0xFFFFU) >= 1;
  const auto kind =
      usual ? static_cast<capnp::rpc::Message::Which>(little_endian<uint16_t>(head_.data() + 8))
            : capnp::rpc::Message::CALL;
  if (kind == capnp::rpc::Message::FINISH) {
    if (open_questions_ > 0) --open_questions_;
  } else if (kind == capnp::rpc::Message::CALL || kind == capnp::rpc::Message::BOOTSTRAP) {
    if (++open_questions_ > limits_.questions_max)
      return bad(fmt::format("{} calls without a finish, limit {}", open_questions_,
                             limits_.questions_max));
  }
  return {};
}

}  // namespace troupe::rpc

#include "transport/channel.h"

#include <fmt/format.h>

namespace troupe {

ChannelSender::ChannelSender(ChannelLimits limits) : limits_(limits) {
  TROUPE_CHECK(limits_.messages_max > 0, "a window holds at least one message");
}

Result<ChannelMessage> ChannelSender::push(SharedBuffer bytes) {
  if (unacknowledged_.size() >= limits_.messages_max)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("unacknowledged messages: {}, limit {}", unacknowledged_.size(),
                             limits_.messages_max)};
  if (bytes.size() > limits_.bytes_max - bytes_)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("unacknowledged bytes: {} and {} more, limit {}", bytes_, bytes.size(),
                             limits_.bytes_max)};
  bytes_ += bytes.size();
  unacknowledged_.push_back({++last_, std::move(bytes)});
  return unacknowledged_.back();
}

Result<void> ChannelSender::acknowledge(uint64_t number) {
  if (number > last_)
    return Error{ErrorCode::kInvalidFrame,
                 fmt::format("acknowledges message {}, sent up to {}", number, last_)};
  while (!unacknowledged_.empty() && unacknowledged_.front().number <= number) {
    bytes_ -= unacknowledged_.front().bytes.size();
    unacknowledged_.pop_front();
  }
  if (number > acknowledged_) acknowledged_ = number;
  return {};
}

ChannelReceiver::ChannelReceiver(uint32_t acknowledge_every) : every_(acknowledge_every) {
  TROUPE_CHECK(every_ > 0, "an acknowledgement follows at least one delivery");
}

ChannelVerdict ChannelReceiver::accept(uint64_t number) {
  if (number == delivered_ + 1) {
    delivered_ = number;
    ++unacknowledged_;
    return ChannelVerdict::kDeliver;
  }
  due_ = true;
  return number <= delivered_ ? ChannelVerdict::kRepeat : ChannelVerdict::kGap;
}

void ChannelReceiver::acknowledgement_sent() {
  unacknowledged_ = 0;
  due_ = false;
}

}  // namespace troupe

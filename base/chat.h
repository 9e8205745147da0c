// A message of a conversation.
#pragma once

#include <string>

namespace troupe {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"; the model's chat template decides
  std::string content;
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

}  // namespace troupe

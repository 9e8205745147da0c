// A message of a conversation.
#pragma once

#include <string>

namespace troupe {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"; the model's chat template decides
  std::string content;
  // For tools; empty: absent.
  std::string name = {};
  std::string tool_calls = {};  // JSON: the calls that an assistant's message makes
  std::string tool_call_id = {};
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

}  // namespace troupe

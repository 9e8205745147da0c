#include "actors/rpc/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace troupe {
namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

// 1 to `limit` printable ASCII characters without spaces.
Result<void> validate_word(const char* what, const std::string& word, size_t limit) {
  if (word.empty()) return invalid(fmt::format("the {} is empty", what));
  if (word.size() > limit)
    return invalid(fmt::format("a {} of {} bytes, limit {}", what, word.size(), limit));
  const auto bad =
      std::find_if(word.begin(), word.end(), [](char c) { return c < 0x21 || c > 0x7e; });
  if (bad != word.end())
    return invalid(
        fmt::format("the {} holds byte 0x{:02x} at position {}, allowed is printable ASCII "
                    "without spaces",
                    what, static_cast<unsigned char>(*bad), bad - word.begin()));
  return {};
}

Result<void> validate_model_name(const std::string& model) {
  if (model.size() > kModelNameBytesMax)
    return invalid(
        fmt::format("a model name of {} bytes, limit {}", model.size(), kModelNameBytesMax));
  return {};
}

Result<void> validate_messages(const std::vector<ChatMessage>& messages) {
  if (messages.size() > kMessagesMax)
    return invalid(fmt::format("{} chat messages, limit {}", messages.size(), kMessagesMax));
  size_t bytes = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role.empty()) return invalid(fmt::format("chat message {} has no role", i));
    if (message.role.size() > kRoleBytesMax)
      return invalid(fmt::format("chat message {} has a role of {} bytes, limit {}", i,
                                 message.role.size(), kRoleBytesMax));
    bytes += message.content.size();
  }
  if (bytes == 0) return invalid("the prompt is empty: every chat message is without content");
  if (bytes > kPromptBytesMax)
    return invalid(fmt::format("chat messages of {} bytes, limit {}", bytes, kPromptBytesMax));
  return {};
}

Result<void> validate_prompt(const GenerateCall& call) {
  const int given = (call.prompt.empty() ? 0 : 1) + (call.messages.empty() ? 0 : 1) +
                    (call.prompt_tokens.empty() ? 0 : 1);
  if (given == 0) return invalid("the prompt is empty: give a text, chat messages or tokens");
  if (given > 1)
    return invalid(
        fmt::format("{} kinds of prompt, allowed is one: a text, chat messages or tokens", given));
  if (call.prompt.size() > kPromptBytesMax)
    return invalid(
        fmt::format("a prompt of {} bytes, limit {}", call.prompt.size(), kPromptBytesMax));
  if (call.prompt_tokens.size() > kPromptTokensMax)
    return invalid(fmt::format("a prompt of {} tokens, limit {}", call.prompt_tokens.size(),
                               kPromptTokensMax));
  if (!call.messages.empty()) return validate_messages(call.messages);
  return {};
}

}  // namespace

Result<void> validate_request_id(const RequestId& id) {
  return validate_word("request id", id, kRequestIdBytesMax);
}

Result<void> validate(const DrainCall& call) {
  return validate_word("node id", call.node, kNodeIdBytesMax);
}

Result<void> validate(const MoveCall& call) {
  TROUPE_TRY_VOID(validate_model_name(call.model));
  return validate_word("node id", call.node, kNodeIdBytesMax);
}

Result<void> validate(const StandbyCall& call) {
  return validate_model_name(call.model);
}

Result<void> validate(const GenerateCall& call) {
  TROUPE_TRY_VOID(validate_request_id(call.id));
  TROUPE_TRY_VOID(validate_model_name(call.model));
  TROUPE_TRY_VOID(validate_prompt(call));
  if (call.max_tokens == 0) return invalid("max_tokens 0, allowed is 1 and up");
  if (call.max_tokens > kGeneratedTokensMax)
    return invalid(fmt::format("max_tokens {}, limit {}", call.max_tokens, kGeneratedTokensMax));
  if (call.after > call.max_tokens)
    return invalid(fmt::format("cursor {} lies beyond max_tokens {}", call.after, call.max_tokens));
  return check_sampling(call.sampling);
}

RequestId make_request_id() {
  std::random_device entropy;
  const auto word = [&entropy] { return uint64_t{entropy()} << 32 | entropy(); };
  const uint64_t high = word();
  return to_hex(high) + to_hex(word());
}

}  // namespace troupe

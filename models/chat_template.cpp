#include "models/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace troupe {

namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

bool known_role(std::string_view role) {
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

// A newline inside a Jinja string: itself, or its escape.
std::optional<std::string_view> after_newline(std::string_view text) {
  for (const std::string_view newline : {"\n", "\\n"})
    if (text.starts_with(newline)) return text.substr(newline.size());
  return std::nullopt;
}

// The text in
//   {% if loop.first and messages[0]['role'] != 'system' %}{{
//   '<|im_start|>system\nTEXT<|im_end|>\n' }}{% endif %}
// Nothing if the template is not written so.
std::optional<std::string> find_default_system(std::string_view jinja) {
  for (const std::string_view condition :
       {"messages[0]['role'] != 'system'", "messages[0].role != 'system'",
        "messages[0]['role'] != \"system\"", "messages[0][\"role\"] != \"system\""}) {
    const size_t place = jinja.find(condition);
    if (place == std::string_view::npos) continue;
    std::string_view rest = jinja.substr(place + condition.size());
    constexpr std::string_view kOpening = "<|im_start|>system";
    const size_t opening = rest.find(kOpening);
    if (opening == std::string_view::npos) continue;
    const auto text = after_newline(rest.substr(opening + kOpening.size()));
    if (!text.has_value()) continue;
    const size_t end = text->find(kEnd);
    // A quote or backslash means an expression or an escape: not the plain text that is understood
    // here.
    if (end == std::string_view::npos) continue;
    const std::string_view message = text->substr(0, end);
    if (message.find_first_of("'\"\\{}") != std::string_view::npos) continue;
    return std::string(message);
  }
  return std::nullopt;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::recognise(std::string_view jinja) {
  ChatTemplate result;
  if (jinja.find(kStart) == std::string_view::npos || jinja.find(kEnd) == std::string_view::npos)
    return Error{
        ErrorCode::kInvalidFile,
        fmt::format("chat template '{}' is not supported; supported is ChatML (<|im_start|> and "
                    "<|im_end|>)",
                    printable(jinja))};
  if (jinja.find("<|im_start|>system") != std::string_view::npos) {
    std::optional<std::string> text = find_default_system(jinja);
    if (!text.has_value())
      return Error{ErrorCode::kInvalidFile,
                   "the chat template adds a system message in a way that is not understood"};
    result.default_system_message_ = std::move(*text);
  }
  return result;
}

Result<ChatTemplate> ChatTemplate::from(const GgufFile& file) {
  constexpr const char* kKey = "tokenizer.chat_template";
  if (!file.has(kKey))
    return Error{ErrorCode::kNotFound, "the model has no chat template (tokenizer.chat_template)"};
  TROUPE_TRY(const std::string_view jinja, file.text(kKey));
  return recognise(jinja);
}

Result<std::vector<ChatPiece>> ChatTemplate::render(std::span<const ChatMessage> messages) const {
  if (messages.empty())
    return Error{ErrorCode::kInvalidArgument, "a conversation without messages"};
  if (messages.size() > kChatMessagesMax)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} messages, limit {}", messages.size(), kChatMessagesMax)};
  size_t bytes = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!known_role(messages[i].role))
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("message {} has role '{}', known are {}", i,
                               printable(messages[i].role), fmt::join(kRoles, ", "))};
    bytes += messages[i].content.size();
    if (bytes > kEncodeBytesMax)
      return Error{ErrorCode::kResourceExhausted,
                   fmt::format("messages of more than {} bytes together", kEncodeBytesMax)};
  }
  std::vector<ChatPiece> pieces;
  // Role, newline and content are one plain piece: a model's tokenizer saw them as one text.
  const auto add = [&](std::string_view role, std::string_view content) {
    pieces.push_back({std::string(kStart), true});
    pieces.push_back({fmt::format("{}\n{}", role, content), false});
    pieces.push_back({std::string(kEnd), true});
    pieces.push_back({"\n", false});
  };
  if (!default_system_message_.empty() && messages.front().role != "system")
    add("system", default_system_message_);
  for (const ChatMessage& message : messages) add(message.role, message.content);
  pieces.push_back({std::string(kStart), true});
  pieces.push_back({"assistant\n", false});
  return pieces;
}

Result<std::vector<uint32_t>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                   std::span<const ChatMessage> messages) const {
  TROUPE_TRY(const std::vector<ChatPiece> pieces, render(messages));
  TROUPE_TRY(std::vector<uint32_t> tokens, tokenizer.encode("", {.begin_text = true}));
  for (const ChatPiece& piece : pieces) {
    if (piece.special) {
      const std::optional<uint32_t> token = tokenizer.special(piece.text);
      if (!token.has_value())
        return Error{ErrorCode::kInvalidFile,
                     fmt::format("the vocabulary has no special token {}", piece.text)};
      tokens.push_back(*token);
      continue;
    }
    // The limit is on what the client wrote; the role in front of it does not count.
    TROUPE_TRY(const std::vector<uint32_t> plain,
               tokenizer.encode(piece.text, {.bytes_max = kEncodeBytesMax + 16}));
    tokens.insert(tokens.end(), plain.begin(), plain.end());
  }
  return tokens;
}

}  // namespace troupe

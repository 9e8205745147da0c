#include "models/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "models/chat_templates/interpreter.h"
#include "models/chat_templates/known.h"
#include "models/tokenizers/unicode.h"

namespace troupe {

namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant", "tool",
                                                    "developer"};

Result<void> check_messages(std::span<const ChatMessage> messages) {
  if (messages.empty())
    return Error{ErrorCode::kInvalidArgument, "a conversation without messages"};
  if (messages.size() > kChatMessagesMax)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} messages, limit {}", messages.size(), kChatMessagesMax)};
  size_t bytes = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end())
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("message {} has role '{}', known are {}", i, printable(message.role),
                               fmt::join(kRoles, ", "))};
    for (const std::string* text :
         {&message.content, &message.name, &message.tool_calls, &message.tool_call_id}) {
      bytes += text->size();
      if (bytes > kEncodeBytesMax)
        return Error{ErrorCode::kResourceExhausted,
                     fmt::format("messages of more than {} bytes together", kEncodeBytesMax)};
      if (valid_utf8_prefix(*text) != text->size())
        return Error{ErrorCode::kInvalidArgument, fmt::format("message {} is not UTF-8", i)};
    }
  }
  return {};
}

// Roles are of our own list, so they are trusted: some templates make special tokens of them.
Result<chat::Value> message_value(chat::Budget& budget, const ChatMessage& message) {
  chat::Dict dict;
  const auto add = [&](std::string_view key, chat::Value value) {
    return chat::put(budget, dict, chat::Value::text(key, true), std::move(value));
  };
  TROUPE_TRY_VOID(budget.take(4 * message.content.size()));
  TROUPE_TRY_VOID(add("role", chat::Value::text(message.role, true)));
  TROUPE_TRY_VOID(add("content", chat::Value::text(message.content, false)));
  if (!message.name.empty()) TROUPE_TRY_VOID(add("name", chat::Value::text(message.name, false)));
  if (!message.tool_calls.empty()) {
    TROUPE_TRY(chat::Value calls, chat::from_json(budget, message.tool_calls));
    TROUPE_TRY_VOID(add("tool_calls", std::move(calls)));
  }
  if (!message.tool_call_id.empty())
    TROUPE_TRY_VOID(add("tool_call_id", chat::Value::text(message.tool_call_id, false)));
  return chat::make_dict(budget, std::move(dict));
}

using Variables = std::unordered_map<std::string, chat::Value>;

Result<void> add_json(chat::Budget& budget, Variables& variables, const std::string& name,
                      const std::string& json) {
  if (json.size() > kEncodeBytesMax)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} of {} bytes, limit {}", name, json.size(), kEncodeBytesMax)};
  TROUPE_TRY(variables[name], chat::from_json(budget, json));
  return {};
}

// Text whose bytes all share an origin becomes one piece.
std::vector<ChatPiece> pieces_of(const chat::Text& text) {
  std::vector<ChatPiece> pieces;
  for (size_t begin = 0; begin < text.size();) {
    const bool trusted = text.trust[begin] != 0;
    const size_t end = std::min(text.trust.find(trusted ? '\0' : '\1', begin), text.size());
    pieces.push_back({text.bytes.substr(begin, end - begin), trusted});
    begin = end;
  }
  return pieces;
}

Result<std::string> token_text(const GgufFile& file, const char* key) {
  if (!file.has(key) || !file.has("tokenizer.ggml.tokens")) return std::string();
  TROUPE_TRY(const uint64_t token, file.unsigned_integer(key));
  TROUPE_TRY(const std::span<const std::string_view> tokens, file.texts("tokenizer.ggml.tokens"));
  if (token >= tokens.size())
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} is {}, the vocabulary ends at {}", key, token, tokens.size())};
  return std::string(tokens[token].substr(0, kTokenBytesMax));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::from_text(std::string_view text, std::string_view bos_token,
                                             std::string_view eos_token) {
  const std::optional<std::string_view> known = chat::known_template(text);
  TROUPE_TRY(chat::Body body, chat::parse_template(known.value_or(text)));
  ChatTemplate result;
  result.body_ = std::make_shared<const chat::Body>(std::move(body));
  result.bos_token_ = bos_token;
  result.eos_token_ = eos_token;
  return result;
}

std::vector<std::string_view> ChatTemplate::known_names() {
  return chat::known_names();
}

Result<ChatTemplate> ChatTemplate::from(const GgufFile& file, std::string_view name) {
  std::string key = "tokenizer.chat_template";
  if (!name.empty()) key += fmt::format(".{}", name);
  if (!file.has(key))
    return Error{ErrorCode::kNotFound, fmt::format("the model has no chat template ({})", key)};
  TROUPE_TRY(const std::string_view jinja, file.text(key));
  TROUPE_TRY(const std::string bos, token_text(file, "tokenizer.ggml.bos_token_id"));
  TROUPE_TRY(const std::string eos, token_text(file, "tokenizer.ggml.eos_token_id"));
  return from_text(jinja, bos, eos);
}

Result<std::vector<ChatPiece>> ChatTemplate::render(std::span<const ChatMessage> messages,
                                                    const ChatOptions& options) const {
  TROUPE_TRY_VOID(check_messages(messages));
  chat::Interpreter interpreter(options.unix_time);
  chat::Budget& budget = interpreter.budget();
  Variables variables;
  for (const auto& [name, json] : options.variables)
    TROUPE_TRY_VOID(add_json(budget, variables, name, json));
  std::vector<chat::Value> list;
  for (size_t i = 0; i < messages.size(); ++i) {
    auto message = message_value(budget, messages[i]);
    if (!message.ok()) return with_context(message.error(), fmt::format("message {}", i));
    list.push_back(std::move(message).value());
  }
  TROUPE_TRY(variables["messages"], chat::make_list(budget, std::move(list)));
  variables["tools"] = chat::Value::none();
  variables["documents"] = chat::Value::none();
  if (!options.tools.empty()) TROUPE_TRY_VOID(add_json(budget, variables, "tools", options.tools));
  if (!options.documents.empty())
    TROUPE_TRY_VOID(add_json(budget, variables, "documents", options.documents));
  variables["add_generation_prompt"] = chat::Value::boolean(options.add_generation_prompt);
  variables["bos_token"] = chat::Value::text(bos_token_, true);
  variables["eos_token"] = chat::Value::text(eos_token_, true);
  TROUPE_TRY(const chat::Text text, interpreter.run(*body_, std::move(variables)));
  return pieces_of(text);
}

// The text between special tokens is tokenised as one, whoever wrote its parts: so a model's
// tokenizer saw it.
Result<std::vector<uint32_t>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                   std::span<const ChatMessage> messages,
                                                   const ChatOptions& options) const {
  TROUPE_TRY(const std::vector<ChatPiece> pieces, render(messages, options));
  std::vector<uint32_t> tokens;
  std::string plain;
  const auto flush = [&]() -> Result<void> {
    TROUPE_TRY(const std::vector<uint32_t> encoded,
               tokenizer.encode(plain, {.bytes_max = chat::kOutputBytesMax}));
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
    plain.clear();
    return {};
  };
  for (const ChatPiece& piece : pieces) {
    size_t offset = 0;
    while (piece.trusted) {
      const auto match = tokenizer.find_special(piece.text, offset);
      if (!match) break;
      plain += piece.text.substr(offset, match->offset - offset);
      TROUPE_TRY_VOID(flush());
      tokens.push_back(match->token);
      offset = match->offset + match->bytes;
    }
    plain += piece.text.substr(offset);
  }
  TROUPE_TRY_VOID(flush());
  TROUPE_TRY(const std::vector<uint32_t> begin, tokenizer.encode("", {.begin_text = true}));
  if (!begin.empty() && (tokens.empty() || tokens[0] != begin[0]))
    tokens.insert(tokens.begin(), begin.begin(), begin.end());
  return tokens;
}

}  // namespace troupe

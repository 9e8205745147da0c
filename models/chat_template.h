// A conversation as the text, and the tokens, a model was trained to continue. A template is the
// program that the model's file carries (tokenizer.chat_template, in Jinja), run in a sandbox
// (chat_templates/), or one given in its place: Jinja text, or the name of a known format.
//
// Every byte of the result knows whether the template or the client wrote it. Only what the
// template wrote is searched for special tokens, so what a client writes cannot end its message and
// start another's, whatever the template does to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/chat.h"
#include "base/result.h"
#include "models/chat_templates/syntax.h"
#include "models/gguf.h"
#include "models/tokenizer.h"

namespace troupe {

inline constexpr size_t kChatMessagesMax = 4096;

struct ChatPiece {
  std::string text;
  bool trusted = false;  // the template's: may be searched for special tokens
  friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string tools = {};      // a JSON array; empty: none
  std::string documents = {};  // a JSON array; empty: none
  // Further variables of the template: name and JSON ("enable_thinking", "false").
  std::vector<std::pair<std::string, std::string>> variables = {};
  int64_t unix_time = 0;  // what strftime_now shows, in UTC; 0: it is undefined
};

class ChatTemplate {
 public:
  // tokenizer.chat_template, or tokenizer.chat_template.NAME if a name is given. Errors: kNotFound
  // if the file has no such template, kInvalidFile if it cannot be parsed.
  static Result<ChatTemplate> from(const GgufFile& file, std::string_view name = "");
  // A known name (known_names), or Jinja text; the texts of the special tokens that templates print
  // as bos_token and eos_token.
  static Result<ChatTemplate> from_text(std::string_view text, std::string_view bos_token = "",
                                        std::string_view eos_token = "");
  static std::vector<std::string_view> known_names();

  // The conversation, ready for the assistant's answer; neighbours differ in `trusted`. Errors:
  // kInvalidArgument (no message, an unknown role, text that is not UTF-8, what the template
  // refuses), kResourceExhausted (too many messages, kEncodeBytesMax or the sandbox's limits).
  Result<std::vector<ChatPiece>> render(std::span<const ChatMessage> messages,
                                        const ChatOptions& options = {}) const;
  // The same as tokens, with the model's begin-of-text token in front if the model wants one and
  // the template has not put it there. Errors also: those of Tokenizer::encode.
  Result<std::vector<uint32_t>> encode(const Tokenizer& tokenizer,
                                       std::span<const ChatMessage> messages,
                                       const ChatOptions& options = {}) const;

 private:
  std::shared_ptr<const chat::Body> body_;  // shared: copies are cheap
  std::string bos_token_, eos_token_;
};

}  // namespace troupe

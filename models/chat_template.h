// A conversation as the text, and the tokens, a model was trained to continue. Templates in model
// files are programs (Jinja); they are not run: the file's template is recognised, and written here
// once. Supported is ChatML:
//
//   <|im_start|>ROLE\nCONTENT<|im_end|>\n   for each message, then   <|im_start|>assistant\n
//
// with the default system message that the file's template puts in front when the conversation does
// not start with one.
//
// The result is pieces that are either one special token or plain text. Plain text is never
// searched for special tokens, so what a client writes cannot end its message and start another's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/chat.h"
#include "base/result.h"
#include "models/gguf.h"
#include "models/tokenizer.h"

namespace troupe {

inline constexpr size_t kChatMessagesMax = 4096;

struct ChatPiece {
  std::string text;
  bool special = false;  // the text of one special token
  friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

class ChatTemplate {
 public:
  // Errors: kNotFound if the file has no template, kInvalidFile if it is none that is supported.
  static Result<ChatTemplate> from(const GgufFile& file);
  static Result<ChatTemplate> recognise(std::string_view jinja);

  // The conversation, ready for the assistant's answer. Errors: kInvalidArgument (no message, an
  // unknown role), kResourceExhausted (too many messages, or kEncodeBytesMax exceeded).
  Result<std::vector<ChatPiece>> render(std::span<const ChatMessage> messages) const;
  // The same as tokens. Errors also: those of Tokenizer::encode, kInvalidFile if the vocabulary
  // lacks a special token.
  Result<std::vector<uint32_t>> encode(const Tokenizer& tokenizer,
                                       std::span<const ChatMessage> messages) const;

  // Empty if there is none.
  const std::string& default_system_message() const { return default_system_message_; }

 private:
  std::string default_system_message_;
};

}  // namespace troupe

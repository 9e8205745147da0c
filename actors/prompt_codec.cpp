#include "actors/prompt_codec.h"

#include <fmt/format.h>

#include "actors/model_registry.h"
#include "base/time.h"

namespace troupe {

Result<PromptCodec> PromptCodec::from(const LoadedModel& model) {
  PromptCodec codec;
  codec.vocabulary_ = model.config.vocabulary;
  auto tokenizer = Tokenizer::from(model.file);
  if (tokenizer.ok()) {
    codec.tokenizer_ = std::move(tokenizer).value();
    for (uint32_t token = 0; token < codec.tokenizer_->vocabulary(); ++token)
      if (codec.tokenizer_->is_end_of_generation(token)) codec.stop_tokens_.push_back(token);
  } else if (tokenizer.error().code == ErrorCode::kNotFound) {
    codec.no_tokenizer_ = tokenizer.error();
  } else {
    return tokenizer.error();
  }
  auto chat = ChatTemplate::from(model.file);
  if (chat.ok())
    codec.chat_ = std::move(chat).value();
  else
    codec.no_chat_ = chat.error();
  return codec;
}

Result<std::vector<uint32_t>> PromptCodec::encode(const GenerateCall& call) const {
  if (!call.prompt_tokens.empty()) {
    for (const uint32_t token : call.prompt_tokens)
      if (token >= vocabulary_)
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("token {}, the vocabulary ends at {}", token, vocabulary_)};
    return call.prompt_tokens;
  }
  if (!tokenizer_)
    return Error{ErrorCode::kInvalidArgument,
                 "this model takes prompt tokens only: " + no_tokenizer_.message};
  if (call.messages.empty()) return tokenizer_->encode(call.prompt, {.begin_text = true});
  if (!chat_)
    return Error{ErrorCode::kInvalidArgument,
                 "this model cannot chat, send a plain prompt: " + no_chat_.message};
  // Some templates print today's date.
  return chat_->encode(*tokenizer_, call.messages, {.unix_time = wall_clock_ms() / 1000});
}

std::optional<Detokenizer> PromptCodec::detokenizer() const {
  if (!tokenizer_) return std::nullopt;
  return Detokenizer{*tokenizer_};
}

}  // namespace troupe

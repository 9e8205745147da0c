// Text at the edge of the cluster: from a client's call to prompt tokens, and from tokens to text.
// One per deployment.
#pragma once

#include <optional>

#include "actors/messages.h"
#include "models/chat_template.h"
#include "models/tokenizer.h"

namespace troupe {

class PromptCodec {
 public:
  // A model without a tokenizer still serves calls that bring tokens; one without a chat template
  // serves completions.
  static Result<PromptCodec> from(const LoadedModel& model);

  // The prompt's tokens. Errors: kInvalidArgument (nothing to say, a token id the model has not, a
  // model that cannot chat), and the tokenizer's.
  Result<std::vector<uint32_t>> encode(const GenerateCall& call) const;
  std::vector<uint32_t> stop_tokens() const { return stop_tokens_; }
  uint32_t vocabulary() const { return vocabulary_; }
  // Absent for a model without a tokenizer: pieces then carry no text.
  std::optional<Detokenizer> detokenizer() const;

 private:
  uint32_t vocabulary_ = 0;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  Error no_tokenizer_, no_chat_;  // why not
  std::vector<uint32_t> stop_tokens_;
};

}  // namespace troupe

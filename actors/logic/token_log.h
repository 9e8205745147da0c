// The token log of one sequence: its prompt, then what was generated. Everything else about the
// sequence (keys and values, activations) is a function of it and can be computed again.
//
// Appending follows invariant I3 (recovery.md): at the end it grows; before the end an equal token
// is a repeat and changes nothing; a different one is a divergence, two executions of the same
// input that disagree; beyond the end it is a gap. So results may arrive twice, late, or from a
// stage that did not know it was replaced.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

enum class AppendOutcome : uint8_t { kAppended, kRepeat, kDivergence, kGap };
const char* to_string(AppendOutcome outcome);

class TokenLog {
 public:
  explicit TokenLog(std::vector<uint32_t> prompt, std::span<const uint32_t> generated = {});

  // `position` counts from the first prompt token. `logits_digest` is of the logits the token was
  // drawn from; 0 means unknown and is compared with nothing. A repeat with another digest is a
  // divergence even if the token is the same: under the exact profile equal input gives equal bits,
  // so the next token is already in doubt.
  AppendOutcome append(uint32_t position, uint32_t token, uint64_t logits_digest);

  // Forgets what is behind the first `size` tokens, of which the prompt is part: it is in doubt.
  void truncate(uint32_t size);

  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t prompt_size() const { return prompt_size_; }
  uint32_t generated_size() const { return size() - prompt_size_; }
  std::span<const uint32_t> tokens() const { return tokens_; }  // valid until the next append
  std::span<const uint32_t> generated() const { return tokens().subspan(prompt_size_); }
  uint32_t token_at(uint32_t position) const;          // position < size()
  uint64_t logits_digest_at(uint32_t position) const;  // 0: unknown

 private:
  uint32_t prompt_size_;
  std::vector<uint32_t> tokens_;
  std::vector<uint64_t> digests_;  // [generated_size()]
};

}  // namespace troupe

#include "actors/logic/token_log.h"

#include "base/check.h"

namespace troupe {

const char* to_string(AppendOutcome outcome) {
  switch (outcome) {
    case AppendOutcome::kAppended:
      return "appended";
    case AppendOutcome::kRepeat:
      return "repeat";
    case AppendOutcome::kDivergence:
      return "divergence";
    case AppendOutcome::kGap:
      return "gap";
  }
  return "unknown";
}

TokenLog::TokenLog(std::vector<uint32_t> prompt, std::span<const uint32_t> generated)
    : prompt_size_(static_cast<uint32_t>(prompt.size())),
      tokens_(std::move(prompt)),
      digests_(generated.size(), 0) {
  tokens_.insert(tokens_.end(), generated.begin(), generated.end());
}

AppendOutcome TokenLog::append(uint32_t position, uint32_t token, uint64_t logits_digest) {
  if (position > size()) return AppendOutcome::kGap;
  if (position < size()) {
    const uint64_t known = logits_digest_at(position);
    const bool digests_differ = known != 0 && logits_digest != 0 && known != logits_digest;
    return token == tokens_[position] && !digests_differ ? AppendOutcome::kRepeat
                                                         : AppendOutcome::kDivergence;
  }
  tokens_.push_back(token);
  digests_.push_back(logits_digest);
  return AppendOutcome::kAppended;
}

void TokenLog::truncate(uint32_t size) {
  TROUPE_CHECK(size >= prompt_size_ && size <= tokens_.size(), "the prompt is never in doubt");
  tokens_.resize(size);
  digests_.resize(size - prompt_size_);
}

uint32_t TokenLog::token_at(uint32_t position) const {
  TROUPE_CHECK(position < size(), "only what is in the log is read");
  return tokens_[position];
}

uint64_t TokenLog::logits_digest_at(uint32_t position) const {
  TROUPE_CHECK(position < size(), "only what is in the log is read");
  return position < prompt_size_ ? 0 : digests_[position - prompt_size_];
}

}  // namespace troupe

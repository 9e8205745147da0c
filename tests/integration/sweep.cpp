#include "tests/integration/sweep.h"

#include <algorithm>

namespace troupe::test {

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return "equal";
    case Verdict::kDifferent:
      return "different";
    case Verdict::kLost:
      return "lost";
    case Verdict::kDoubled:
      return "doubled";
    case Verdict::kHung:
      return "hung";
    case Verdict::kFailed:
      return "failed";
  }
  return "unknown";
}

void Heard::token(uint64_t index) {
  gap = gap || index > at.size();
  repetition = repetition || index < at.size();
  at.push_back(steady_now());
}

Judgement judge(const Answer& expected, const Heard& heard, const Result<Answer>& got) {
  if (!got.ok()) return {Verdict::kFailed, to_string(got.error())};
  const size_t tokens = got.value().tokens.size();
  if (heard.repetition || tokens > expected.tokens.size())
    return {Verdict::kDoubled, "a token came twice"};
  if (heard.gap || tokens < expected.tokens.size()) return {Verdict::kLost, "a token never came"};
  const auto same = compare(expected, got.value());
  if (!same.ok()) return {Verdict::kDifferent, same.error().message};
  return {};
}

Silence longest_silence(const Heard& heard, Instant from) {
  Silence longest;
  for (size_t i = 1; i < heard.at.size(); ++i) {
    const Duration length = heard.at[i] - heard.at[i - 1];
    if (heard.at[i] >= from && length > longest.length) longest = {length, heard.at[i]};
  }
  return longest;
}

nlohmann::json to_json(const Tally& tally) {
  nlohmann::json json = nlohmann::json::object();
  for (const Verdict verdict : {Verdict::kEqual, Verdict::kDifferent, Verdict::kLost,
                                Verdict::kDoubled, Verdict::kHung, Verdict::kFailed}) {
    const auto found = tally.find(verdict);
    json[to_string(verdict)] = found == tally.end() ? 0 : found->second;
  }
  return json;
}

nlohmann::json quantiles(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  return {{"values", values.size()},
          {"p50", at(0.5)},
          {"p90", at(0.9)},
          {"p99", at(0.99)},
          {"max", values.back()}};
}

}  // namespace troupe::test

#include "tests/support/answer.h"

#include <fmt/format.h>

namespace troupe::test {

GenerateRequest story_request(const std::string& id, uint32_t tokens, uint64_t seed) {
  GenerateRequest request;
  request.id = id;
  request.prompt = "Once upon a time there was a lighthouse keeper who";
  request.max_tokens = tokens;
  request.sampling = {.temperature = 0.8F, .top_p = 0.95F, .seed = seed};
  request.ignore_end = true;
  return request;
}

Result<Answer> ask(Client& client, const GenerateRequest& request,
                   const std::function<void(uint64_t)>& at, Pause* pause) {
  Answer answer;
  Instant last = steady_now();
  auto outcome = client.generate(request, [&](const GeneratedPiece& piece) {
    const Instant now = steady_now();
    if (pause && !answer.tokens.empty() && now >= pause->from && now - last > pause->longest) {
      pause->longest = now - last;
      pause->since = last;
    }
    last = now;
    answer.tokens.push_back(piece.token);
    answer.digests.push_back(piece.logits_digest);
    answer.text += piece.text;
    if (at) at(piece.index);
    return true;
  });
  if (!outcome.ok()) return outcome.error();
  if (pause) pause->resumptions = outcome.value().resumptions;
  answer.text += outcome.value().tail;
  return answer;
}

Result<void> compare(const Answer& expected, const Answer& got) {
  if (got.tokens.size() != expected.tokens.size())
    return Error{ErrorCode::kDivergence,
                 fmt::format("{}: {} tokens, expected {}",
                             got.tokens.size() < expected.tokens.size() ? "lost" : "doubled",
                             got.tokens.size(), expected.tokens.size())};
  if (got.tokens != expected.tokens) return Error{ErrorCode::kDivergence, "other tokens"};
  if (got.digests != expected.digests)
    return Error{ErrorCode::kDivergence, "equal tokens of other logits"};
  if (got.text != expected.text) return Error{ErrorCode::kDivergence, "other text"};
  return {};
}

}  // namespace troupe::test

// An answer of a cluster, compared to the last bit of every logit with the undisturbed one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/client/client.h"
#include "base/result.h"
#include "base/time.h"

namespace troupe::test {

struct Answer {
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> digests;  // of the logits behind each token
  std::string text;
};

// Silences of a stream.
struct Pause {
  Duration longest{0};
  Instant since{};  // the longest one began here; only silences that end after `from` count
  Instant from{};
  uint32_t resumptions = 0;
};

// A story of so many tokens, sampled with this seed, past the end of text.
GenerateRequest story_request(const std::string& id, uint32_t tokens, uint64_t seed);
// `at` is called with the index of each token as it comes.
Result<Answer> ask(Client& client, const GenerateRequest& request,
                   const std::function<void(uint64_t)>& at = {}, Pause* pause = nullptr);
// kDivergence: what is different first: lost or doubled tokens, other tokens, other logits or text.
Result<void> compare(const Answer& expected, const Answer& got);

}  // namespace troupe::test

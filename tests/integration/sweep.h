// What the sweeps share: how an answer is unlike the undisturbed one, where a stream fell silent,
// and figures over many runs.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "tests/support/answer.h"

namespace troupe::test {

enum class Verdict : uint8_t {
  kEqual,
  kDifferent,  // a token, the logits behind one, or the text
  kLost,       // tokens that never came
  kDoubled,    // tokens that came twice
  kHung,       // no end by the deadline
  kFailed,     // the cluster answered with an error
};
const char* to_string(Verdict verdict);

// A stream as its client saw it.
struct Heard {
  std::vector<Instant> at;  // [token]
  bool gap = false, repetition = false;

  // Call it with the index of each piece as it comes.
  void token(uint64_t index);
};

struct Judgement {
  Verdict verdict = Verdict::kEqual;
  std::string why;  // empty: equal
};
Judgement judge(const Answer& expected, const Heard& heard, const Result<Answer>& got);

// The longest time between two tokens of which the second came after `from`.
struct Silence {
  Duration length{0};
  Instant end{};
};
Silence longest_silence(const Heard& heard, Instant from);

// Streams of each verdict.
using Tally = std::map<Verdict, size_t>;
nlohmann::json to_json(const Tally& tally);

// {"values": how many, "p50", "p90", "p99", "max"}; null if there are none.
nlohmann::json quantiles(std::vector<double> values);

}  // namespace troupe::test

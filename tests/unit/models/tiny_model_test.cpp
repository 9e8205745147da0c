// What other tests rely on in the generated models: greedy text that is varied, goes on, and
// differs between prompts. A degenerate model (one token for ever) would make every test of
// exactness and recovery pass.
#include "tests/support/tiny_model.h"

#include <boost/test/unit_test.hpp>
#include <set>

#include "kernels/quant_decode.h"
#include "models/tokenizer.h"
#include "tests/support/pipeline.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

// Whether the last 40 tokens repeat with a period of at most 30.
bool loops(const std::vector<uint32_t>& tokens) {
  constexpr size_t kWindow = 40, kPeriodMax = 30;
  for (size_t period = 1; period <= kPeriodMax; ++period) {
    size_t equal = 0;
    for (size_t i = tokens.size() - kWindow; i < tokens.size(); ++i)
      equal += tokens[i] == tokens[i - period] ? 1 : 0;
    if (equal == kWindow) return true;
  }
  return false;
}

void check_varied(const TinyModelOptions& options) {
  const auto writer = make_tiny_model(options);
  require_ok(writer);
  const Bytes bytes = writer.value().bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  const Tokenizer tokenizer = Tokenizer::from(file).value();
  auto pipeline = Pipeline::make(file, {});
  require_ok(pipeline);
  const std::vector<Prompt> prompts = {{tokenizer.encode("hello world").value(), {}},
                                       {tokenizer.encode("The quick brown fox").value(), {}}};
  const auto generated = generate(pipeline.value(), prompts, {.tokens = 120});
  require_ok(generated);
  for (const Generation& generation : generated.value()) {
    BOOST_REQUIRE(generation.tokens.size() == 120U);
    const std::set<uint32_t> distinct(generation.tokens.begin(), generation.tokens.end());
    BOOST_TEST(distinct.size() >= 30U);
    BOOST_TEST(!loops(generation.tokens));
    for (const uint32_t token : distinct) BOOST_TEST(!tokenizer.is_special(token));
  }
  BOOST_TEST((generated.value()[0].tokens != generated.value()[1].tokens));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tiny_model)

BOOST_AUTO_TEST_CASE(greedy_text_is_varied_and_goes_on) {
  for (const DataType type : kDataTypes)
    for (const bool tied : {false, true}) {
      // A tied head makes text of some of the later types repeat itself: no test builds on these.
      if (tied && has_decoder(type)) continue;
      const uint32_t hidden = block_elements(type) > 64 ? 256 : 64;
      BOOST_TEST_CONTEXT(to_string(type) << (tied ? ", tied head" : "")) {
        check_varied({.hidden = hidden, .ffn = 2 * hidden, .type = type, .tied_head = tied});
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

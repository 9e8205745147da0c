// A sample of the exactness matrix on the real model, small enough for every test run;
// exactness_matrix runs all of it.
#include <boost/test/unit_test.hpp>

#include "models/tokenizer.h"
#include "tests/support/exactness_cells.h"
#include "tests/support/real_model.h"
#include "tests/support/skip.h"

namespace {

using namespace troupe;
using namespace troupe::test;

GgufFile open_model() {
  const auto path = real_model_path();
  if (!path) skip_all("TROUPE_SMOLLM2 is not set to the path of SmolLM2-135M-Instruct's GGUF file");
  auto file = GgufFile::open(*path);
  BOOST_REQUIRE_MESSAGE(file.ok(), to_string(file.ok() ? Error{} : file.error()));
  return std::move(file).value();
}

std::vector<Prompt> first_prompts(const GgufFile& file, size_t count) {
  auto prompts = chat_prompts(file);
  BOOST_REQUIRE_MESSAGE(prompts.ok(), to_string(prompts.ok() ? Error{} : prompts.error()));
  prompts.value().resize(count);
  return std::move(prompts).value();
}

std::vector<Generation> run_cell(ExactnessRunner& runner, const ExactnessCell& cell) {
  auto made = runner.run(cell);
  BOOST_REQUIRE_MESSAGE(made.ok(), to_string(made.ok() ? Error{} : made.error()));
  return std::move(made).value();
}

bool has_avx2() {
  return make_operators({.kernels = KernelChoice::kAvx2}).ok();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(smollm2)

// Cells chosen so that each value of each axis is met, and each pair of neighbours on the axes of
// stages and threads.
BOOST_AUTO_TEST_CASE(a_sample_of_the_matrix_gives_the_same_bits) {
  const GgufFile file = open_model();
  if (!has_avx2())
    skip_all("this processor has no AVX2; with the reference kernels it takes too long");
  constexpr auto kAvx2 = KernelChoice::kAvx2;
  ExactnessRunner runner(file, first_prompts(file, 4), 8);
  const auto expected = run_cell(runner, {.kernels = kAvx2, .batch = 1, .chunk = 1});
  for (const ExactnessCell& cell :
       {ExactnessCell{kAvx2, 1, 1, 4, 0}, ExactnessCell{kAvx2, 2, 2, 4, 7},
        ExactnessCell{kAvx2, 2, 3, 1, 0}, ExactnessCell{kAvx2, 1, 6, 4, 7}}) {
    const std::string difference = first_difference(expected, run_cell(runner, cell));
    BOOST_TEST(difference.empty(), test::to_string(cell) << ": " << difference);
  }
  ExactnessCell control{kAvx2, 1, 1, 4, 0, true};
  BOOST_TEST(!first_difference(expected, run_cell(runner, control)).empty());
}

BOOST_AUTO_TEST_CASE(reference_and_avx2_kernels_give_the_same_bits) {
  const GgufFile file = open_model();
  if (!has_avx2()) skip_all("this processor has no AVX2");
  ExactnessRunner runner(file, first_prompts(file, 1), 2);
  const auto defined = run_cell(runner, {.kernels = KernelChoice::kReference, .stages = 3});
  const auto computed = run_cell(runner, {.kernels = KernelChoice::kAvx2, .threads = 2});
  BOOST_TEST(first_difference(defined, computed) == "");
}

// Words that no broken arithmetic would find: a completion of plain text, and an answer in the chat
// template.
BOOST_AUTO_TEST_CASE(the_model_makes_sense) {
  const GgufFile file = open_model();
  const Tokenizer tokenizer = std::move(Tokenizer::from(file)).value();
  std::vector<Prompt> prompts = first_prompts(file, 2);
  prompts.front() = {.tokens = tokenizer.encode("The capital of France is").value(),
                     .sampling = {}};
  ExactnessRunner runner(file, prompts, 20);
  const auto made = run_cell(runner, {.batch = 2});
  const auto text_of = [&](const Generation& generation) {
    Detokenizer detokenizer(tokenizer);
    std::string text;
    for (const uint32_t token : generation.tokens) text += detokenizer.feed(token);
    BOOST_TEST_MESSAGE(text);
    return text;
  };
  BOOST_TEST(text_of(made.at(0)).starts_with(" Paris"));
  BOOST_TEST((text_of(made.at(1)).find("scatter") != std::string::npos));  // why the sky is blue
}

BOOST_AUTO_TEST_SUITE_END()

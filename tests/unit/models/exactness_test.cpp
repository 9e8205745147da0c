// One arithmetic (docs/ARCHITECTURE.md): tokens and logits are the same bits whatever the number of
// stages, the batch, the prefill chunks, the threads, the kernels, the order of KV blocks, and
// whether the sequence was replayed. A generated model, whole matrix; exactness_matrix runs the
// same on a real one.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>

#include "kernels/quant_blocks.h"
#include "tests/support/pipeline.h"
#include "tests/support/tiny_model.h"

namespace {

using namespace troupe;
using namespace troupe::test;

struct TinyModel {
  std::vector<std::byte> bytes;
  GgufFile file;
};

TinyModel make_model(const TinyModelOptions& options) {
  auto writer = make_tiny_model(options);
  BOOST_REQUIRE(writer.ok());
  std::vector<std::byte> bytes = writer.value().bytes();
  auto file = GgufFile::parse(bytes);
  BOOST_REQUIRE_MESSAGE(file.ok(), to_string(file.ok() ? Error{} : file.error()));
  return {std::move(bytes), std::move(file).value()};
}

const TinyModel& model() {
  static const TinyModel made = make_model({});
  return made;
}

Pipeline pipeline_of(const GgufFile& file, const PipelineOptions& options) {
  auto made = Pipeline::make(file, options);
  BOOST_REQUIRE_MESSAGE(made.ok(), to_string(made.ok() ? Error{} : made.error()));
  return std::move(made).value();
}

// Lengths around the edges of KV blocks and chunks; greedy and sampled ones.
std::vector<Prompt> make_prompts() {
  std::mt19937_64 random(2024);
  std::vector<Prompt> prompts;
  for (const size_t length : {1, 2, 7, 8, 40, 57, 63, 64, 65, 130}) {
    Prompt prompt;
    for (size_t i = 0; i < length; ++i)
      prompt.tokens.push_back(static_cast<uint32_t>(3 + random() % 256));
    if (prompts.size() % 2 == 1)
      prompt.sampling = {.temperature = 0.9F, .top_p = 0.95F, .seed = random()};
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// `shortest`: only so many of the prompts, for what is repeated often.
std::vector<Generation> generated(Pipeline& pipeline, const GenerateOptions& options,
                                  size_t shortest = SIZE_MAX) {
  std::vector<Prompt> prompts = make_prompts();
  prompts.resize(std::min(prompts.size(), shortest));
  pipeline.reset();
  auto made = generate(pipeline, prompts, options);
  BOOST_REQUIRE_MESSAGE(made.ok(), to_string(made.ok() ? Error{} : made.error()));
  return std::move(made).value();
}

constexpr uint32_t kTokens = 10;

const std::vector<Generation>& expected() {
  static const std::vector<Generation> made = [] {
    Pipeline pipeline =
        pipeline_of(model().file, {.backend = {.kernels = KernelChoice::kReference}});
    return generated(pipeline, {.tokens = kTokens, .batch = 1, .chunk = 1});
  }();
  return made;
}

// What this machine can run: AVX2 is left out, with a word, where the processor lacks it.
std::vector<BackendOptions> backends() {
  std::vector<BackendOptions> usable;
  for (const BackendOptions& options :
       {BackendOptions{.kernels = KernelChoice::kReference},
        BackendOptions{.kernels = KernelChoice::kAvx2, .threads = 1},
        BackendOptions{.kernels = KernelChoice::kAvx2, .threads = 2}}) {
    const auto made = make_operators(options);
    if (made.ok())
      usable.push_back(options);
    else
      BOOST_TEST_MESSAGE("left out: " << made.error().message);
  }
  return usable;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(exactness)

BOOST_AUTO_TEST_CASE(the_generated_model_says_different_things) {
  std::vector<uint32_t> seen;
  for (const Generation& generation : expected())
    seen.insert(seen.end(), generation.tokens.begin(), generation.tokens.end());
  std::sort(seen.begin(), seen.end());
  // Were all tokens equal, the comparisons below could hardly fail.
  const auto different = std::unique(seen.begin(), seen.end()) - seen.begin();
  BOOST_TEST(different > 20);
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_stages_batch_chunks_threads_kernels_or_blocks) {
  uint64_t block_seed = 0;
  for (const BackendOptions& backend : backends())
    for (const uint32_t stages : {1U, 2U, 3U, 6U}) {
      Pipeline pipeline = pipeline_of(model().file, {.stages = stages, .backend = backend});
      for (const uint32_t batch : {1U, 3U, 10U})
        for (const uint32_t chunk : {1U, 7U, 0U}) {
          const auto made = generated(
              pipeline,
              {.tokens = kTokens, .batch = batch, .chunk = chunk, .block_seed = block_seed++});
          const std::string difference = first_difference(expected(), made);
          BOOST_TEST(difference.empty(), to_string(backend.kernels)
                                             << ", threads " << backend.threads << ", stages "
                                             << stages << ", batch " << batch << ", chunk " << chunk
                                             << ": " << difference);
        }
    }
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_kernels_for_any_weight_type) {
  for (const DataType type : kDataTypes) {
    const uint32_t width = block_elements(type) == kSuperBlock ? kSuperBlock : 64;
    const TinyModel other = make_model(
        {.layers = 2, .hidden = width, .ffn = width, .type = type, .tied_head = true, .seed = 3});
    std::vector<Generation> first;
    for (const BackendOptions& backend : backends()) {
      Pipeline pipeline = pipeline_of(other.file, {.stages = 2, .backend = backend});
      const auto made = generated(pipeline, {.tokens = 3, .batch = first.empty() ? 1U : 10U}, 5);
      if (first.empty()) first = made;
      const std::string difference = first_difference(first, made);
      BOOST_TEST(difference.empty(), to_string(type) << ": " << difference);
    }
  }
}

BOOST_AUTO_TEST_CASE(bits_depend_on_nothing_in_any_architecture) {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    const TinyModel other = make_model({.layers = 4, .seed = 9, .architecture = architecture});
    Pipeline alone = pipeline_of(other.file, {.backend = {.kernels = KernelChoice::kReference}});
    const auto want = generated(alone, {.tokens = 6, .batch = 1, .chunk = 1}, 8);
    for (const BackendOptions& backend : backends())
      for (const uint32_t stages : {1U, 3U}) {
        Pipeline pipeline = pipeline_of(other.file, {.stages = stages, .backend = backend});
        for (const uint32_t chunk : {7U, 0U}) {
          const auto made = generated(
              pipeline, {.tokens = 6, .batch = 10, .chunk = chunk, .block_seed = stages + chunk},
              8);
          const std::string difference = first_difference(want, made);
          BOOST_TEST(difference.empty(), architecture << ", " << to_string(backend.kernels) << ", "
                                                      << stages << " stages: " << difference);
        }
      }
  }
}

BOOST_AUTO_TEST_CASE(a_replay_from_any_position_continues_with_the_same_bits) {
  const size_t which = 5;  // sampled, 57 tokens: its generation crosses a block's edge
  const Prompt prompt = make_prompts()[which];
  const Generation& want = expected()[which];
  std::mt19937_64 random(7);
  for (const BackendOptions& backend : backends()) {
    Pipeline pipeline = pipeline_of(model().file, {.stages = 3, .backend = backend});
    for (size_t known = 0; known < want.tokens.size(); ++known) {
      Prompt longer = prompt;
      longer.tokens.insert(longer.tokens.end(), want.tokens.begin(),
                           want.tokens.begin() + static_cast<ptrdiff_t>(known));
      pipeline.reset();
      const auto made = generate(pipeline, {&longer, 1},
                                 {.tokens = static_cast<uint32_t>(want.tokens.size() - known),
                                  .chunk = static_cast<uint32_t>(1 + random() % 40),
                                  .block_seed = known});
      BOOST_REQUIRE(made.ok());
      const Generation rest{
          {want.tokens.begin() + static_cast<ptrdiff_t>(known), want.tokens.end()},
          {want.digests.begin() + static_cast<ptrdiff_t>(known), want.digests.end()}};
      const std::string difference = first_difference({&rest, 1}, made.value());
      BOOST_TEST(difference.empty(), "from token " << known << ": " << difference);
    }
  }
}

// The negative control: kernels that cut K by the number of rows. Were this test to pass with them,
// the ones above would show nothing.
BOOST_AUTO_TEST_CASE(a_split_k_kernel_is_noticed) {
  for (BackendOptions backend : backends()) {
    backend.test_split_k = true;
    Pipeline pipeline = pipeline_of(model().file, {.backend = backend});
    const auto one_row = generated(pipeline, {.tokens = kTokens, .batch = 1, .chunk = 1});
    const auto chunked = generated(pipeline, {.tokens = kTokens, .batch = 1, .chunk = 0});
    const auto batched = generated(pipeline, {.tokens = kTokens, .batch = 10, .chunk = 1});
    BOOST_TEST(!first_difference(one_row, chunked).empty());
    BOOST_TEST(!first_difference(one_row, batched).empty());
    // With one row it computes as the others do, so the difference is the split's.
    BOOST_TEST(first_difference(expected(), one_row).empty());
  }
}

BOOST_AUTO_TEST_SUITE_END()

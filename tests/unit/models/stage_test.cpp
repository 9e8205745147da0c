// What a stage refuses, that refusing changes nothing, and invariant I5: positions below the KV
// length execute again and give the same bytes, positions above it are a gap.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "models/transformer_stage.h"
#include "tests/support/pipeline.h"
#include "tests/support/tiny_model.h"

namespace {

using namespace troupe;
using namespace troupe::test;

constexpr uint32_t kBlocks = 40;
constexpr uint32_t kRowsMax = 96;

struct Fixture {
  Fixture() : bytes(make()), file(GgufFile::parse(bytes).value()) {
    auto made = Pipeline::make(file, {.stages = 3,
                                      .backend = {.kernels = KernelChoice::kReference},
                                      .kv_blocks = kBlocks,
                                      .rows_max = kRowsMax});
    BOOST_REQUIRE_MESSAGE(made.ok(), to_string(made.ok() ? Error{} : made.error()));
    pipeline = std::make_unique<Pipeline>(std::move(made).value());
    std::mt19937_64 random(12);
    for (int i = 0; i < 200; ++i) log.push_back(static_cast<uint32_t>(3 + random() % 256));
  }

  static std::vector<std::byte> make() {
    auto writer = make_tiny_model({.layers = 3, .context = 200});
    BOOST_REQUIRE(writer.ok());
    return writer.value().bytes();
  }

  static Segment segment(uint64_t sequence, uint32_t position, uint32_t rows,
                         std::vector<uint32_t> blocks, bool sample = true) {
    return {.sequence = {sequence},
            .position = position,
            .rows = rows,
            .blocks = std::move(blocks),
            .sample = sample,
            .sampling = {}};
  }
  static MicroBatch batch_of(std::vector<Segment> segments, std::vector<SequenceId> released = {}) {
    return {.id = {1}, .segments = std::move(segments), .released = std::move(released)};
  }
  std::vector<uint32_t> tokens_of(const MicroBatch& batch) const {
    std::vector<uint32_t> tokens;
    for (const Segment& s : batch.segments)
      for (uint32_t r = 0; r < s.rows; ++r) tokens.push_back(log[(s.position + r) % log.size()]);
    return tokens;
  }
  Result<StageOutput> run(const MicroBatch& batch) {
    return pipeline->run(batch, tokens_of(batch));
  }
  uint64_t digest(const MicroBatch& batch) {
    const Result<StageOutput> output = run(batch);
    BOOST_REQUIRE_MESSAGE(output.ok(), to_string(output.ok() ? Error{} : output.error()));
    return output.value().sampled.at(0).logits_digest;
  }
  // Feeds [0, end) of a sequence.
  void feed(uint64_t sequence, uint32_t end, const std::vector<uint32_t>& blocks) {
    for (uint32_t p = 0; p < end; p += kRowsMax)
      BOOST_REQUIRE(
          run(batch_of({segment(sequence, p, std::min(kRowsMax, end - p), blocks, false)})).ok());
  }

  std::vector<std::byte> bytes;
  GgufFile file;
  std::unique_ptr<Pipeline> pipeline;
  std::vector<uint32_t> log;
};

void check_refused(const Result<StageOutput>& output, ErrorCode code, const char* what) {
  BOOST_REQUIRE_MESSAGE(!output.ok(), what);
  BOOST_TEST_MESSAGE(what << ": " << output.error().message);
  BOOST_TEST((output.error().code == code), what << ": " << to_string(output.error()));
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(transformer_stage, Fixture)

BOOST_AUTO_TEST_CASE(every_bad_field_is_refused_and_changes_nothing) {
  feed(1, 70, {0, 1});
  const uint64_t before = digest(batch_of({segment(1, 69, 1, {0, 1})}));
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  const auto with = [](const std::function<void(Segment&)>& change) {
    Segment s = segment(2, 0, 3, {5});
    change(s);
    // A good segment in front: it must not have run when the bad one is found.
    return batch_of({segment(1, 70, 1, {0, 1}), s});
  };
  const std::vector<std::pair<const char*, MicroBatch>> cases = {
      {"no sequence", with([](Segment& s) { s.sequence = {}; })},
      {"no rows", with([](Segment& s) { s.rows = 0; })},
      {"too many rows", with([](Segment& s) { s.rows = kRowsMax; })},
      {"rows that overflow", with([](Segment& s) { s.rows = kHuge; })},
      {"position past the context", with([](Segment& s) { s.position = 198; })},
      {"position that overflows", with([](Segment& s) { s.position = kHuge; })},
      {"no blocks", with([](Segment& s) { s.blocks.clear(); })},
      {"too few blocks", with([](Segment& s) { s.position = 62; })},
      {"a block that does not exist", with([](Segment& s) { s.blocks = {kBlocks}; })},
      {"a huge block", with([](Segment& s) { s.blocks = {kHuge}; })},
      {"more blocks than exist", with([](Segment& s) { s.blocks.assign(kBlocks + 1, 5); })},
      {"a block named twice", with([](Segment& s) {
         s.blocks = {5, 5};
       })},
      {"a block of the other segment", with([](Segment& s) { s.blocks = {1}; })},
      {"a sequence that goes on under another table", with([](Segment& s) {
         s.sequence = {1};
         s.position = 71;
       })},
      {"a sequence that goes on behind a gap", with([](Segment& s) {
         s.sequence = {1};
         s.position = 72;
         s.blocks = {0, 1};
       })},
      {"a sequence that goes on under a shorter table", with([](Segment& s) {
         s.sequence = {1};
         s.position = 70;
         s.rows = 1;
         s.blocks = {0};
       })},
      {"a temperature that is no number",
       with([](Segment& s) { s.sampling.temperature = std::nanf(""); })},
      {"an absurd top_p", with([](Segment& s) { s.sampling.top_p = 2.0F; })},
  };
  for (const auto& [what, batch] : cases)
    check_refused(pipeline->stage(0).run(batch, std::vector<uint32_t>(4, 5), {}),
                  ErrorCode::kInvalidFrame, what);
  BOOST_TEST(pipeline->stage(0).kv_length({1}) == 70U);
  BOOST_TEST(pipeline->stage(0).kv_length({2}) == 0U);
  BOOST_TEST(digest(batch_of({segment(1, 69, 1, {0, 1})})) == before);
}

BOOST_AUTO_TEST_CASE(a_sequence_in_pieces_comes_out_as_one_after_the_other) {
  feed(1, 60, {0});
  feed(2, 10, {2});
  const auto one = [&](uint64_t sequence, uint32_t position, std::vector<uint32_t> blocks) {
    return segment(sequence, position, 1, std::move(blocks));
  };
  std::vector<uint64_t> apart;
  for (uint32_t p = 60; p < 68; ++p)
    apart.push_back(digest(
        batch_of({one(1, p, p < 64 ? std::vector<uint32_t>{0} : std::vector<uint32_t>{0, 1})})));
  for (uint32_t p = 10; p < 12; ++p) apart.push_back(digest(batch_of({one(2, p, {2})})));
  // The same positions of other sequences, all in one micro-batch, one row repeated.
  feed(11, 60, {4});
  feed(12, 10, {6});
  std::vector<Segment> pieces;
  for (uint32_t p = 60; p < 68; ++p)
    pieces.push_back(one(11, p, p < 64 ? std::vector<uint32_t>{4} : std::vector<uint32_t>{4, 5}));
  for (uint32_t p = 10; p < 12; ++p) pieces.push_back(one(12, p, {6}));
  const Result<StageOutput> output = run(batch_of(pieces));
  BOOST_TEST_REQUIRE(output.ok());
  BOOST_TEST_REQUIRE(output.value().sampled.size() == apart.size());
  for (size_t i = 0; i < apart.size(); ++i)
    BOOST_TEST(output.value().sampled[i].logits_digest == apart[i]);
  // And all of it is held.
  BOOST_TEST(digest(batch_of({one(11, 68, {4, 5})})) == digest(batch_of({one(1, 68, {0, 1})})));
}

BOOST_AUTO_TEST_CASE(input_of_the_wrong_shape_is_refused) {
  const MicroBatch batch = batch_of({segment(1, 0, 3, {0})});
  StageProgram& first = pipeline->stage(0);
  StageProgram& second = pipeline->stage(1);
  const uint32_t vocabulary = pipeline->config().vocabulary;
  const size_t bytes_wanted = size_t{3} * pipeline->config().hidden * sizeof(float);
  const auto refused = [](StageProgram& stage, const MicroBatch& b, std::vector<uint32_t> tokens,
                          size_t hidden_bytes, const char* what) {
    const SharedBuffer hidden =
        hidden_bytes == 0 ? SharedBuffer{} : SharedBuffer::allocate(hidden_bytes);
    check_refused(stage.run(b, tokens, hidden), ErrorCode::kInvalidFrame, what);
  };
  refused(first, batch, {1, 2}, 0, "too few tokens");
  refused(first, batch, {1, 2, 3, 4}, 0, "too many tokens");
  refused(first, batch, {1, 2, vocabulary}, 0, "a token outside the vocabulary");
  refused(first, batch, {1, 2, 3}, bytes_wanted, "hidden values for the first stage");
  refused(second, batch, {1, 2, 3}, bytes_wanted, "tokens for a later stage");
  refused(second, batch, {}, 0, "no hidden values");
  refused(second, batch, {}, bytes_wanted - 4, "too few hidden values");
  refused(second, batch, {}, bytes_wanted + 1, "too many hidden bytes");
  refused(first, batch_of({}), {1}, 0, "tokens for no rows");
  BOOST_TEST(first.kv_length({1}) == 0U);
  BOOST_TEST(second.kv_length({1}) == 0U);
}

BOOST_AUTO_TEST_CASE(a_position_above_the_kv_length_is_a_gap) {
  check_refused(run(batch_of({segment(1, 1, 1, {0})})), ErrorCode::kConflict, "unknown sequence");
  feed(1, 10, {0});
  check_refused(run(batch_of({segment(1, 11, 1, {0})})), ErrorCode::kConflict, "one past the end");
  check_refused(run(batch_of({segment(2, 0, 2, {3}), segment(1, 11, 1, {0})})),
                ErrorCode::kConflict, "one of two");
  BOOST_TEST(pipeline->stage(0).kv_length({2}) == 0U);
  BOOST_TEST(run(batch_of({segment(1, 10, 1, {0})})).ok());
}

BOOST_AUTO_TEST_CASE(positions_below_the_kv_length_execute_again_with_the_same_bytes) {
  const std::vector<uint32_t> blocks = {3, 0, 7};
  std::vector<uint64_t> digests;
  for (uint32_t p = 0; p < 140; ++p)
    digests.push_back(digest(batch_of({segment(1, p, 1, blocks)})));
  std::mt19937_64 random(4);
  for (int i = 0; i < 60; ++i) {
    const auto from = static_cast<uint32_t>(random() % 140);
    const uint32_t rows = 1 + static_cast<uint32_t>(random() % std::min(kRowsMax, 140 - from));
    std::vector<uint32_t> table = blocks;
    table.resize((from + rows + 63) / 64);  // as it was when the micro-batch was first sent
    BOOST_TEST(digest(batch_of({segment(1, from, rows, table)})) == digests[from + rows - 1]);
    BOOST_TEST(pipeline->stage(2).kv_length({1}) == 140U);
  }
  // Half below, half above: the new rows are stored, and come out as when fed one by one.
  const uint64_t straddling = digest(batch_of({segment(1, 130, 20, blocks)}));
  BOOST_TEST(pipeline->stage(1).kv_length({1}) == 150U);
  pipeline->reset();
  feed(1, 149, blocks);
  BOOST_TEST(digest(batch_of({segment(1, 149, 1, blocks)})) == straddling);
}

BOOST_AUTO_TEST_CASE(hidden_values_of_a_repeat_are_the_same_bytes) {
  StageProgram& stage = pipeline->stage(0);
  const auto output_of = [&](uint32_t from, uint32_t rows) {
    const MicroBatch batch = batch_of({segment(1, from, rows, {2})});
    const auto output = stage.run(batch, tokens_of(batch), {});
    BOOST_REQUIRE(output.ok());
    BOOST_TEST(output.value().sampled.empty());
    const ByteSpan bytes_out = output.value().hidden.view();
    return std::vector<std::byte>(bytes_out.begin(), bytes_out.end());
  };
  const std::vector<std::byte> whole = output_of(0, 40);
  const size_t row = pipeline->config().hidden * sizeof(float);
  BOOST_REQUIRE(whole.size() == 40 * row);
  const std::vector<std::byte> part = output_of(17, 5);
  BOOST_TEST((std::memcmp(part.data(), whole.data() + 17 * row, 5 * row) == 0));
}

// A repeat with other input (a peer's fault) must not spoil what is held.
BOOST_AUTO_TEST_CASE(a_repeat_does_not_write) {
  feed(1, 30, {0});
  const uint64_t before = digest(batch_of({segment(1, 30, 1, {0})}));
  const MicroBatch again = batch_of({segment(1, 5, 20, {0})});
  BOOST_REQUIRE(pipeline->run(again, std::vector<uint32_t>(20, 9)).ok());
  BOOST_TEST(digest(batch_of({segment(1, 30, 1, {0})})) == before);
}

BOOST_AUTO_TEST_CASE(released_sequences_are_forgotten_and_their_blocks_serve_others) {
  feed(1, 20, {0});
  feed(2, 20, {1});
  // Released in the micro-batch that gives its block to another.
  const uint64_t shared = digest(batch_of({segment(3, 0, 20, {0})}, {{1}, {77}}));
  BOOST_TEST(pipeline->stage(0).kv_length({1}) == 0U);
  BOOST_TEST(pipeline->stage(0).kv_length({2}) == 20U);
  BOOST_TEST(digest(batch_of({segment(4, 0, 20, {9})})) == shared);
  const Result<StageOutput> bare = run(batch_of({}, {{2}}));
  BOOST_REQUIRE(bare.ok());
  BOOST_TEST(bare.value().sampled.empty());
  for (size_t s = 0; s < pipeline->stages(); ++s)
    BOOST_TEST(pipeline->stage(s).kv_length({2}) == 0U);
  // Released with rows of its own in the same micro-batch: they run, then it is forgotten.
  BOOST_TEST(run(batch_of({segment(3, 20, 1, {0})}, {{3}})).value().sampled.size() == 1U);
  BOOST_TEST(pipeline->stage(2).kv_length({3}) == 0U);
}

// The batcher's mistake, or a late repeat: a block in two hands costs its first owner a replay,
// never a wrong answer.
BOOST_AUTO_TEST_CASE(a_block_taken_by_another_sequence_turns_the_owner_into_a_gap) {
  feed(1, 70, {0, 1});
  const uint64_t want = digest(batch_of({segment(1, 70, 1, {0, 1})}));
  feed(2, 10, {1});
  check_refused(run(batch_of({segment(1, 71, 1, {0, 1})})), ErrorCode::kConflict, "robbed");
  feed(1, 70, {0, 4});
  BOOST_TEST(digest(batch_of({segment(1, 70, 1, {0, 4})})) == want);
  // A sequence that moves loses what lay behind the change; robbed in the same micro-batch, it
  // still goes on right.
  check_refused(run(batch_of({segment(1, 71, 1, {0, 5})})), ErrorCode::kConflict, "moved");
  BOOST_REQUIRE(run(batch_of({segment(3, 0, 5, {4}), segment(1, 64, 6, {0, 6})})).ok());
  BOOST_TEST(digest(batch_of({segment(1, 70, 1, {0, 6})})) == want);
}

BOOST_AUTO_TEST_CASE(reset_forgets_all) {
  feed(1, 20, {0});
  pipeline->reset();
  for (size_t s = 0; s < pipeline->stages(); ++s)
    BOOST_TEST(pipeline->stage(s).kv_length({1}) == 0U);
  check_refused(run(batch_of({segment(1, 20, 1, {0})})), ErrorCode::kConflict, "after a reset");
}

BOOST_AUTO_TEST_CASE(sampled_tokens_come_in_the_order_of_their_segments) {
  std::vector<Segment> segments;
  // More than the head takes at once.
  for (uint32_t s = 0; s < kBlocks; ++s)
    segments.push_back(segment(100 - s, 0, 1 + s % 3, {s}, s % 4 != 2));
  const Result<StageOutput> output = run(batch_of(segments));
  BOOST_REQUIRE(output.ok());
  size_t i = 0;
  for (const Segment& s : segments) {
    if (!s.sample) continue;
    const SampledToken& token = output.value().sampled.at(i++);
    BOOST_TEST((token.sequence == s.sequence));
    BOOST_TEST(token.position == s.rows);
    BOOST_TEST(token.token < pipeline->config().vocabulary);
    BOOST_TEST(digest(batch_of({segment(500 + i, 0, s.rows, {0})})) == token.logits_digest);
  }
  BOOST_TEST(i == output.value().sampled.size());
  BOOST_TEST(output.value().hidden.empty());
}

BOOST_AUTO_TEST_CASE(broken_hidden_values_are_an_error_and_not_a_token) {
  StageProgram& last = pipeline->stage(2);
  SharedBuffer hidden = SharedBuffer::allocate(pipeline->config().hidden * sizeof(float));
  for (float& value : hidden.as_mutable<float>()) value = std::nanf("");
  check_refused(last.run(batch_of({segment(1, 0, 1, {0})}), {}, hidden), ErrorCode::kInvalidFrame,
                "not a number");
  BOOST_TEST(last.kv_length({1}) == 0U);
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  const std::shared_ptr<Operators> operators =
      std::move(make_operators({.kernels = KernelChoice::kReference})).value();
  const auto code = [&](const std::function<void(TransformerStageOptions&)>& change) {
    TransformerStageOptions options{.file = file,
                                    .config = pipeline->config(),
                                    .layers = {0, 3},
                                    .kv_blocks = 4,
                                    .rows_max = 8,
                                    .operators = operators};
    change(options);
    const auto made = make_transformer_stage(std::move(options));
    return made.ok() ? std::string("made") : std::string(to_string(made.error().code));
  };
  BOOST_TEST(code([](auto&) {}) == "made");
  BOOST_TEST(code([](auto& o) { o.rows_max = 0; }) == "invalid argument");
  BOOST_TEST(code([](auto& o) { o.rows_max = kStageRowsMax + 1; }) == "invalid argument");
  BOOST_TEST(code([](auto& o) { o.kv_blocks = 0; }) == "invalid argument");
  BOOST_TEST(code([](auto& o) { o.layers = {1, 1}; }) == "invalid argument");
  BOOST_TEST(code([](auto& o) { o.layers = {2, 1}; }) == "invalid argument");
  BOOST_TEST(code([](auto& o) { o.layers = {0, 4}; }) == "invalid argument");
}

BOOST_AUTO_TEST_CASE(memory_is_told) {
  const StageMemory first = pipeline->stage(0).memory(), middle = pipeline->stage(1).memory();
  BOOST_TEST(first.weight_bytes > middle.weight_bytes);  // the embedding
  // One layer: 2 halves x 40 blocks x 2 kv heads x 16 dimensions x 64 positions x 2 bytes.
  BOOST_TEST(middle.kv_bytes == 2ULL * 40 * 2 * 16 * 64 * 2);
  BOOST_TEST(middle.scratch_bytes > 0U);
}

BOOST_AUTO_TEST_SUITE_END()

// The layers against a second implementation: the textbook formulas in double precision, whole
// sequences at once, no cache, no blocks, straight from the file's tensors. It shows that the right
// operators are wired to the right weights; the bits are the business of exactness_test.cpp.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "base/digest.h"
#include "models/architectures/decoder.h"
#include "models/evaluate.h"
#include "tests/support/pipeline.h"
#include "tests/support/tiny_model.h"

namespace {

using namespace troupe;

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class Textbook {
 public:
  Textbook(const GgufFile& file, const ModelConfig& config) : file_(file), config_(config) {}

  Rows logits(std::span<const uint32_t> tokens) const {
    Rows x;
    const Rows table = tensor(decoder::kTokenEmbedding);
    for (const uint32_t token : tokens) x.push_back(table[token]);
    for (uint32_t layer = 0; layer < config_.layers; ++layer) {
      attend(x, layer);
      widen(x, layer);
    }
    const Rows head = tensor(config_.tied_head ? decoder::kTokenEmbedding : decoder::kOutput);
    return product(head, norm(tensor(decoder::kOutputNorm)[0], x));
  }

 private:
  Rows tensor(const std::string& name) const {
    const GgufTensor* found = file_.find(name);
    BOOST_REQUIRE_MESSAGE(found != nullptr, name);
    BOOST_REQUIRE(found->data_type().value() == DataType::kF32);
    Rows rows(found->rows(), Row(found->columns()));
    for (size_t r = 0; r < rows.size(); ++r)
      for (size_t c = 0; c < rows[r].size(); ++c) {
        float value = 0.0F;
        std::memcpy(&value, found->bytes.data() + (r * rows[r].size() + c) * sizeof(float),
                    sizeof(float));
        rows[r][c] = double{value};
      }
    return rows;
  }
  Rows part(uint32_t layer, const char* name) const {
    return tensor(decoder::layer_tensor(layer, name));
  }

  static Rows product(const Rows& w, const Rows& x) {
    Rows y(x.size(), Row(w.size(), 0.0));
    for (size_t r = 0; r < x.size(); ++r)
      for (size_t o = 0; o < w.size(); ++o)
        for (size_t i = 0; i < w[o].size(); ++i) y[r][o] += w[o][i] * x[r][i];
    return y;
  }

  static void add_bias(Rows& x, const Row& bias) {
    for (Row& row : x)
      for (size_t c = 0; c < row.size(); ++c) row[c] += bias[c];
  }

  // Each head by itself.
  void norm_heads(Rows& x, const Row& weight) const {
    for (Row& row : x) {
      Rows heads;
      for (size_t at = 0; at < row.size(); at += weight.size())
        heads.emplace_back(row.begin() + static_cast<ptrdiff_t>(at),
                           row.begin() + static_cast<ptrdiff_t>(at + weight.size()));
      row.clear();
      for (const Row& head : norm(weight, heads)) row.insert(row.end(), head.begin(), head.end());
    }
  }

  Rows norm(const Row& weight, const Rows& x) const {
    Rows y = x;
    for (Row& row : y) {
      double squares = 0.0;
      for (const double value : row) squares += value * value;
      const double scale =
          1.0 / std::sqrt(squares / static_cast<double>(row.size()) + double{config_.rms_epsilon});
      for (size_t c = 0; c < row.size(); ++c) row[c] *= scale * weight[c];
    }
    return y;
  }

  void rotate(Rows& x) const {
    const uint32_t dim = config_.head_dim;
    for (size_t p = 0; p < x.size(); ++p)
      for (size_t head = 0; head < x[p].size() / dim; ++head)
        for (uint32_t i = 0; i < config_.rotary_dims; i += 2) {
          const double angle =
              static_cast<double>(p) *
              std::pow(double{config_.rope_base}, -double(i) / double(config_.rotary_dims));
          const bool halves = config_.architecture != "llama";
          double& a = x[p][head * dim + (halves ? i / 2 : i)];
          double& b = x[p][head * dim + (halves ? i / 2 + config_.rotary_dims / 2 : i + 1)];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = a * std::sin(angle) + b * std::cos(angle);
          a = turned;
        }
  }

  void attend(Rows& x, uint32_t layer) const {
    const Rows n = norm(part(layer, decoder::kAttentionNorm)[0], x);
    Rows q = product(part(layer, decoder::kQuery), n);
    Rows k = product(part(layer, decoder::kKey), n);
    Rows v = product(part(layer, decoder::kValue), n);
    if (config_.architecture == "qwen2") {
      add_bias(q, tensor(decoder::layer_bias(layer, decoder::kQuery))[0]);
      add_bias(k, tensor(decoder::layer_bias(layer, decoder::kKey))[0]);
      add_bias(v, tensor(decoder::layer_bias(layer, decoder::kValue))[0]);
    }
    if (config_.architecture == "qwen3") {
      norm_heads(q, part(layer, decoder::kQueryNorm)[0]);
      norm_heads(k, part(layer, decoder::kKeyNorm)[0]);
    }
    rotate(q);
    rotate(k);
    const size_t dim = config_.head_dim;
    Rows attended(x.size(), Row(config_.query_columns(), 0.0));
    for (size_t p = 0; p < x.size(); ++p)
      for (size_t head = 0; head < config_.heads; ++head) {
        const size_t kv = head / (config_.heads / config_.kv_heads) * dim;
        Row weights(p + 1, 0.0);
        double sum = 0.0;
        for (size_t s = 0; s <= p; ++s) {
          double score = 0.0;
          for (size_t d = 0; d < dim; ++d) score += q[p][head * dim + d] * k[s][kv + d];
          weights[s] = std::exp(score / std::sqrt(static_cast<double>(dim)));
          sum += weights[s];
        }
        for (size_t s = 0; s <= p; ++s)
          for (size_t d = 0; d < dim; ++d)
            attended[p][head * dim + d] += weights[s] / sum * v[s][kv + d];
      }
    add(x, product(part(layer, decoder::kAttentionOutput), attended));
  }

  void widen(Rows& x, uint32_t layer) const {
    const Rows n = norm(part(layer, decoder::kFfnNorm)[0], x);
    Rows gate = product(part(layer, decoder::kFfnGate), n);
    const Rows up = product(part(layer, decoder::kFfnUp), n);
    for (size_t r = 0; r < gate.size(); ++r)
      for (size_t c = 0; c < gate[r].size(); ++c)
        gate[r][c] = gate[r][c] / (1.0 + std::exp(-gate[r][c])) * up[r][c];
    add(x, product(part(layer, decoder::kFfnDown), gate));
  }

  static void add(Rows& x, const Rows& y) {
    for (size_t r = 0; r < x.size(); ++r)
      for (size_t c = 0; c < x[r].size(); ++c) x[r][c] += y[r][c];
  }

  const GgufFile& file_;
  const ModelConfig& config_;
};

struct Loaded {
  std::vector<std::byte> bytes;
  GgufFile file;
  ModelConfig config;
};

Loaded load(const test::TinyModelOptions& options) {
  auto writer = test::make_tiny_model(options);
  BOOST_REQUIRE(writer.ok());
  std::vector<std::byte> bytes = writer.value().bytes();
  auto file = GgufFile::parse(bytes);
  BOOST_REQUIRE_MESSAGE(file.ok(), to_string(file.ok() ? Error{} : file.error()));
  auto config = read_model_config(file.value());
  BOOST_REQUIRE_MESSAGE(config.ok(), to_string(config.ok() ? Error{} : config.error()));
  return {std::move(bytes), std::move(file).value(), std::move(config).value()};
}

std::shared_ptr<Operators> reference() {
  return std::move(make_operators({.kernels = KernelChoice::kReference})).value();
}

std::vector<uint32_t> random_tokens(size_t count, uint32_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random() % vocabulary);
  return tokens;
}

std::unique_ptr<Evaluator> evaluator_of(const Loaded& model, uint32_t rows_max) {
  auto made = Evaluator::make({.file = model.file,
                               .config = model.config,
                               .operators = reference(),
                               .tokens_max = model.config.context_max,
                               .rows_max = rows_max});
  BOOST_REQUIRE_MESSAGE(made.ok(), to_string(made.ok() ? Error{} : made.error()));
  return std::move(made).value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(forward)

// Keys and values are rounded to half precision (2^-11 of their size), sums to float: the
// difference stays far below the spread of the logits, while any wrong wiring makes it as large.
BOOST_AUTO_TEST_CASE(logits_follow_the_textbook_formulas) {
  for (const auto& [architecture, tied] :
       {std::pair{"llama", false}, {"llama", true}, {"qwen2", true}, {"qwen3", false}}) {
    const Loaded model = load({.layers = 3,
                               .type = DataType::kF32,
                               .tied_head = tied,
                               .seed = 5,
                               .architecture = architecture});
    const std::vector<uint32_t> tokens = random_tokens(90, model.config.vocabulary, 17);
    const Rows want = Textbook(model.file, model.config).logits(tokens);
    double spread = 0.0, worst = 0.0;
    size_t visited = 0;
    const auto compare = [&](uint32_t position, std::span<const float> logits) {
      BOOST_REQUIRE(position == visited++);
      BOOST_REQUIRE(logits.size() == want[position].size());
      const auto [low, high] = std::minmax_element(want[position].begin(), want[position].end());
      spread = std::max(spread, *high - *low);
      for (size_t i = 0; i < logits.size(); ++i)
        worst = std::max(worst, std::abs(double{logits[i]} - want[position][i]));
    };
    BOOST_REQUIRE(evaluator_of(model, 64)->run(tokens, compare).ok());
    BOOST_TEST(visited == tokens.size());
    BOOST_TEST_MESSAGE("spread " << spread << ", largest difference " << worst);
    BOOST_TEST(worst < 0.003 * spread);
  }
}

BOOST_AUTO_TEST_CASE(an_evaluation_gives_the_bits_a_pipeline_samples_from) {
  const Loaded model = load({.layers = 3});
  const std::vector<uint32_t> tokens = random_tokens(70, model.config.vocabulary, 3);
  std::vector<uint64_t> digests;
  const auto keep = [&](uint32_t, std::span<const float> logits) {
    digests.push_back(digest64(std::as_bytes(logits)));
  };
  BOOST_REQUIRE(evaluator_of(model, 33)->run(tokens, keep).ok());
  auto pipeline = test::Pipeline::make(
      model.file, {.stages = 2, .backend = {.kernels = KernelChoice::kReference}});
  BOOST_REQUIRE(pipeline.ok());
  for (uint32_t p = 0; p < tokens.size(); ++p) {
    MicroBatch batch{.id = {p + 1}, .segments = {}, .released = {}};
    batch.segments.push_back({.sequence = {1},
                              .position = p,
                              .rows = 1,
                              .blocks = {4, 2},
                              .sample = true,
                              .sampling = {}});
    const auto output = pipeline.value().run(batch, {&tokens[p], 1});
    BOOST_REQUIRE(output.ok());
    BOOST_TEST(output.value().sampled.at(0).logits_digest == digests[p], "position " << p);
  }
}

BOOST_AUTO_TEST_CASE(evaluation_refuses_what_does_not_fit) {
  const Loaded model = load({.layers = 1});
  const auto ignore = [](uint32_t, std::span<const float>) {};
  const auto evaluator = evaluator_of(model, 8);
  const std::vector<uint32_t> unknown = {0, model.config.vocabulary};
  const std::vector<uint32_t> long_text(model.config.context_max + 1, 5);
  for (const std::vector<uint32_t>& tokens : {std::vector<uint32_t>{}, unknown, long_text}) {
    const Result<void> run = evaluator->run(tokens, ignore);
    BOOST_REQUIRE(!run.ok());
    BOOST_TEST((run.error().code == ErrorCode::kInvalidArgument));
  }
  for (const uint32_t tokens_max : {0U, model.config.context_max + 1})
    BOOST_TEST(!Evaluator::make({.file = model.file,
                                 .config = model.config,
                                 .operators = reference(),
                                 .tokens_max = tokens_max})
                    .ok());
  BOOST_TEST(!Evaluator::make({.file = model.file,
                               .config = model.config,
                               .operators = reference(),
                               .tokens_max = 8,
                               .rows_max = 0})
                  .ok());
}

BOOST_AUTO_TEST_CASE(a_stage_packs_its_own_part_only) {
  const Loaded model = load({.layers = 6, .tied_head = true});
  const auto operators = reference();
  const auto part = [&](uint32_t first, uint32_t last) {
    auto weights = load_stage_weights(
        model.file, model.config, {.layers = {first, last}, .first = first == 0, .last = last == 6},
        *operators);
    BOOST_REQUIRE(weights.ok());
    return std::move(weights).value();
  };
  const StageWeights whole = part(0, 6), front = part(0, 2), middle = part(2, 4), back = part(4, 6);
  BOOST_TEST((whole.embedding != nullptr && whole.embedding == whole.head));
  BOOST_TEST((front.embedding != nullptr && front.head == nullptr && front.output_norm.empty()));
  BOOST_TEST((middle.embedding == nullptr && middle.head == nullptr));
  BOOST_TEST((back.embedding == nullptr && back.head != nullptr));
  BOOST_TEST(back.output_norm.size() == model.config.hidden);
  BOOST_TEST(middle.layers.size() == 2U);
  // The tied table is held once in the whole model, and by both ends of the cut one.
  BOOST_TEST(front.bytes + middle.bytes + back.bytes == whole.bytes + back.head->memory_bytes());
  for (const LayerRange& range : {LayerRange{2, 2}, LayerRange{3, 2}, LayerRange{4, 7}}) {
    const auto bad = load_stage_weights(model.file, model.config, {.layers = range}, *operators);
    BOOST_REQUIRE(!bad.ok());
    BOOST_TEST((bad.error().code == ErrorCode::kInvalidArgument));
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_contradicts_the_configuration_is_refused) {
  const Loaded model = load({.layers = 2});
  const auto operators = reference();
  const auto refused = [&](const ModelConfig& config) {
    const auto weights =
        load_stage_weights(model.file, config,
                           {.layers = {0, config.layers}, .first = true, .last = true}, *operators);
    BOOST_REQUIRE(!weights.ok());
    BOOST_TEST_MESSAGE(weights.error().message);
    BOOST_TEST((weights.error().code == ErrorCode::kInvalidFile));
  };
  ModelConfig wider = model.config, deeper = model.config, larger = model.config;
  wider.ffn += 32;
  deeper.layers += 1;
  larger.vocabulary += 1;
  refused(wider);
  refused(deeper);
  refused(larger);
}

BOOST_AUTO_TEST_SUITE_END()

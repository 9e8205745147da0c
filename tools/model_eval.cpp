// model_eval MODEL COMMAND: what compare_peers.py asks of us, on token ids, so that no tokenizer or
// chat template lies between the programs that are compared. Reads JSON from standard input where a
// command needs ids, writes JSON to standard output.
//
//   perplexity   in {"windows": [[id, ...], ...]}
//                out {"negative_log_likelihoods": [x, ...], "perplexity", "seconds"}
//                each window starts from nothing; its tokens but the first are scored
//   greedy       in {"prompts": [[id, …], …], "tokens": n}   out {"answers": [[id, …], …]}
//   speed        out {"prefill_tokens_per_second", "decode_tokens_per_second", …}
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "kernels/backend.h"
#include "models/evaluate.h"
#include "models/transformer_stage.h"

namespace {

using namespace troupe;
using Json = nlohmann::ordered_json;
using Ids = std::vector<uint32_t>;

struct Arguments {
  std::string model;
  std::string kernels = "auto";
  size_t threads = 1;
  uint32_t prompt = 512, decode = 64, repeats = 3;
};

struct Model {
  GgufFile file;
  ModelConfig config;
  std::shared_ptr<Operators> operators;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<Model> open_model(const Arguments& arguments) {
  TROUPE_TRY(const KernelChoice kernels, parse_kernel_choice(arguments.kernels));
  TROUPE_TRY(GgufFile file, GgufFile::open(arguments.model));
  TROUPE_TRY(ModelConfig config, read_model_config(file));
  TROUPE_TRY(auto operators, make_operators({.kernels = kernels, .threads = arguments.threads}));
  return Model{std::move(file), std::move(config), std::move(operators)};
}

Result<Json> read_request() {
  std::stringstream text;
  text << std::cin.rdbuf();
  Json request = Json::parse(text.str(), nullptr, false);
  if (!request.is_object())
    return Error{ErrorCode::kInvalidArgument, "standard input is not a JSON object"};
  return request;
}

Result<std::vector<Ids>> id_lists(const Json& request, const char* key) {
  const auto found = request.find(key);
  const auto is_id = [](const Json& id) { return id.is_number_unsigned() && id <= UINT32_MAX; };
  if (found == request.end() || !found->is_array() || found->empty() ||
      !std::all_of(found->begin(), found->end(), [&](const Json& list) {
        return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), is_id);
      }))
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("\"{}\" must be a list of lists of token ids, none of them empty", key)};
  return found->get<std::vector<Ids>>();
}

// -log of the probability of `token`, in double: this is a measurement, not an output.
double negative_log_likelihood(std::span<const float> logits, uint32_t token) {
  const double largest = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return std::log(sum) + largest - double{logits[token]};
}

Result<Json> perplexity(const Model& model) {
  TROUPE_TRY(const Json request, read_request());
  TROUPE_TRY(const std::vector<Ids> windows, id_lists(request, "windows"));
  size_t longest = 0;
  for (const Ids& window : windows) longest = std::max(longest, window.size());
  TROUPE_TRY(const auto evaluator, Evaluator::make({.file = model.file,
                                                    .config = model.config,
                                                    .operators = model.operators,
                                                    .tokens_max = static_cast<uint32_t>(
                                                        std::min<size_t>(longest, UINT32_MAX))}));
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> scores;
  for (const Ids& window : windows) {
    TROUPE_TRY_VOID(evaluator->run(window, [&](uint32_t position, std::span<const float> logits) {
      if (position + 1 >= window.size()) return;
      scores.push_back(negative_log_likelihood(logits, window[position + 1]));
    }));
  }
  if (scores.empty())
    return Error{ErrorCode::kInvalidArgument, "windows of one token score nothing"};
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  return Json{{"perplexity", std::exp(sum / static_cast<double>(scores.size()))},
              {"seconds", seconds_since(start)},
              {"negative_log_likelihoods", scores}};
}

// One sequence on one stage that holds the whole model.
class Session {
 public:
  static constexpr uint32_t kRowsMax = 256;

  static Result<Session> make(const Model& model, size_t positions) {
    const auto blocks = static_cast<uint32_t>((positions + kKvBlockTokens - 1) / kKvBlockTokens);
    TROUPE_TRY(auto stage, make_transformer_stage({.file = model.file,
                                                   .config = model.config,
                                                   .layers = {0, model.config.layers},
                                                   .kv_blocks = blocks,
                                                   .rows_max = kRowsMax,
                                                   .operators = model.operators}));
    Session session;
    session.stage_ = std::move(stage);
    session.blocks_.resize(blocks);
    std::iota(session.blocks_.begin(), session.blocks_.end(), 0U);
    return session;
  }

  void restart() {
    stage_->reset();
    position_ = 0;
  }

  // Feeds tokens; the token that follows the last one.
  Result<uint32_t> feed(std::span<const uint32_t> tokens) {
    uint32_t next = 0;
    while (!tokens.empty()) {
      const size_t rows = std::min<size_t>(kRowsMax, tokens.size());
      MicroBatch batch{.id = {1}, .segments = {}, .released = {}};
      batch.segments.push_back({.sequence = {1},
                                .position = position_,
                                .rows = static_cast<uint32_t>(rows),
                                .blocks = blocks_,
                                .sample = rows == tokens.size(),
                                .sampling = {}});
      TROUPE_TRY(const StageOutput output, stage_->run(batch, tokens.first(rows), {}));
      if (!output.sampled.empty()) next = output.sampled.front().token;
      position_ += static_cast<uint32_t>(rows);
      tokens = tokens.subspan(rows);
    }
    return next;
  }

  StageMemory memory() const { return stage_->memory(); }

 private:
  std::unique_ptr<StageProgram> stage_;
  std::vector<uint32_t> blocks_;
  uint32_t position_ = 0;
};

Result<Json> greedy(const Model& model) {
  TROUPE_TRY(const Json request, read_request());
  TROUPE_TRY(const std::vector<Ids> prompts, id_lists(request, "prompts"));
  const auto wanted = request.find("tokens");
  if (wanted == request.end() || !wanted->is_number_unsigned() || *wanted == 0 || *wanted > 100000)
    return Error{ErrorCode::kInvalidArgument, "\"tokens\" must be a number from 1 to 100000"};
  const auto tokens = wanted->get<size_t>();
  size_t longest = 0;
  for (const Ids& prompt : prompts) longest = std::max(longest, prompt.size());
  TROUPE_TRY(Session session, Session::make(model, longest + tokens));
  Json answers = Json::array();
  for (const Ids& prompt : prompts) {
    session.restart();
    TROUPE_TRY(uint32_t next, session.feed(prompt));
    Ids answer = {next};
    while (answer.size() < tokens) {
      TROUPE_TRY(next, session.feed({&next, 1}));
      answer.push_back(next);
    }
    answers.push_back(answer);
  }
  return Json{{"answers", answers}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of this process, in bytes; 0 where the kernel does not tell.
uint64_t resident_bytes(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what)) return std::stoull(line.substr(line.find(':') + 1)) * 1024;
  return 0;
}

Result<Json> speed(const Model& model, const Arguments& arguments) {
  TROUPE_TRY(Session session, Session::make(model, size_t{arguments.prompt} + arguments.decode));
  Ids prompt(arguments.prompt);
  for (uint32_t i = 0; i < arguments.prompt; ++i)
    prompt[i] = (i * 7919 + 13) % model.config.vocabulary;
  std::vector<double> prefill, decode;
  for (uint32_t repeat = 0; repeat <= arguments.repeats; ++repeat) {
    session.restart();
    auto start = std::chrono::steady_clock::now();
    TROUPE_TRY(uint32_t next, session.feed(prompt));
    const double prefill_seconds = seconds_since(start);
    start = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < arguments.decode; ++i) {
      TROUPE_TRY(next, session.feed({&next, 1}));
    }
    const double decode_seconds = seconds_since(start);
    if (repeat == 0) continue;  // warms caches and pages
    prefill.push_back(arguments.prompt / prefill_seconds);
    decode.push_back(arguments.decode / decode_seconds);
  }
  const StageMemory memory = session.memory();
  return Json{{"kernels", std::string(model.operators->name())},
              {"threads", model.operators->threads()},
              {"prompt", arguments.prompt},
              {"decode", arguments.decode},
              {"repeats", arguments.repeats},
              {"prefill_tokens_per_second", median(prefill)},
              {"decode_tokens_per_second", median(decode)},
              {"file_bytes", model.file.total_bytes()},
              {"weight_bytes", memory.weight_bytes},
              {"kv_bytes", memory.kv_bytes},
              {"scratch_bytes", memory.scratch_bytes},
              {"resident_bytes", resident_bytes("VmRSS")},
              {"resident_peak_bytes", resident_bytes("VmHWM")}};
}

Result<Json> run(const Arguments& arguments, const std::string& command) {
  TROUPE_TRY(const Model model, open_model(arguments));
  if (command == "perplexity") return perplexity(model);
  if (command == "greedy") return greedy(model);
  return speed(model, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Measures a model on token ids: perplexity, greedy answers, speed"};
  app.add_option("model", arguments.model, "GGUF file")->required()->check(CLI::ExistingFile);
  app.add_option("--kernels", arguments.kernels, "auto, avx2 or reference");
  app.add_option("--threads", arguments.threads)->check(CLI::Range(1, 256));
  app.add_subcommand("perplexity", "of windows of token ids");
  app.add_subcommand("greedy", "answers to prompts of token ids");
  CLI::App* speeds = app.add_subcommand("speed", "prefill and decode, one sequence");
  speeds->add_option("--prompt", arguments.prompt, "tokens of prefill")
      ->check(CLI::Range(1, 100000));
  speeds->add_option("--decode", arguments.decode, "tokens of decode")
      ->check(CLI::Range(1, 100000));
  speeds->add_option("--repeats", arguments.repeats, "the median counts")
      ->check(CLI::Range(1, 1000));
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  const Result<Json> result = run(arguments, app.get_subcommands().front()->get_name());
  if (!result.ok()) {
    std::fprintf(stderr, "model_eval: %s\n", to_string(result.error()).c_str());
    return 1;
  }
  std::printf("%s\n", result.value().dump(1).c_str());
  return 0;
}

// troupe bench: N streams at once against a running cluster. Prompts differ from their first word
// on, so that no stream can profit from another.
#include "apps/cli/bench.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/cli/answer_options.h"
#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct BenchCommand {
  ClusterChoice cluster;
  std::string model;
  uint32_t streams = 8, requests = 1, tokens = 64, prompt_tokens = 32;
  bool json = false, no_warmup = false;
};

// About `words` tokens: common English words are one token each for the tokenizers in use; how many
// it really were is in the figures.
std::string make_prompt(size_t number, uint32_t words) {
  static constexpr const char* kWords[] = {"river", "stone",  "light",  "house",
                                           "music", "garden", "window", "morning",
                                           "water", "paper",  "road",   "winter"};
  std::string prompt = fmt::format("{}", number + 1);
  for (uint32_t i = 1; i < words; ++i) {
    prompt += ' ';
    prompt += kWords[(number * 7 + i * 5) % std::size(kWords)];
  }
  return prompt;
}

StreamRecord one_request(Client& client, const BenchCommand& options, size_t number,
                         const std::atomic<bool>& interrupted) {
  GenerateRequest request;
  request.id = fresh_request_id();
  request.model = options.model;
  request.prompt = make_prompt(number, options.prompt_tokens);
  request.max_tokens = options.tokens;
  request.ignore_end = true;
  StreamRecord record;
  record.tokens.reserve(options.tokens);
  record.begin = steady_now();
  const Result<GenerateOutcome> outcome = client.generate(request, [&](const GeneratedPiece&) {
    record.tokens.push_back(steady_now());
    return !interrupted;
  });
  record.end = steady_now();
  if (outcome.ok()) {
    record.prompt_tokens = outcome.value().prompt_tokens;
  } else {
    record.error = printable(to_string(outcome.error()));
  }
  return record;
}

// Every stream in a thread of its own, and one that looks at the status meanwhile.
void load(Client& client, const BenchCommand& options, const std::atomic<bool>& interrupted,
          std::vector<StreamRecord>& records, std::vector<ClusterStatus>& looks) {
  records.resize(size_t{options.streams} * options.requests);
  std::atomic<uint32_t> running{options.streams};
  std::vector<std::thread> threads;
  for (uint32_t stream = 0; stream < options.streams; ++stream) {
    threads.emplace_back([&, stream] {
      for (uint32_t i = 0; i < options.requests && !interrupted; ++i) {
        const size_t number = size_t{stream} * options.requests + i;
        records[number] = one_request(client, options, number, interrupted);
      }
      --running;
    });
  }
  while (running > 0) {
    std::this_thread::sleep_for(250ms);
    Result<ClusterStatus> status = client.status();
    if (status.ok()) looks.push_back(std::move(status).value());
  }
  for (std::thread& thread : threads) thread.join();
}

int bench(const BenchCommand& options) {
  std::atomic<bool> interrupted{false};
  const InterruptWatch watch([&] {
    if (interrupted.exchange(true)) std::_Exit(kExitInterrupted);
  });
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe bench");
  if (!client.ok()) return report(client.error());
  if (!options.no_warmup) {
    BenchCommand warmup = options;
    warmup.tokens = 4;
    const StreamRecord record = one_request(*client.value(), warmup, 0, interrupted);
    if (!record.error.empty()) return report({ErrorCode::kInternal, record.error});
  }
  std::vector<StreamRecord> records;
  std::vector<ClusterStatus> looks;
  load(*client.value(), options, interrupted, records, looks);
  if (interrupted) return kExitInterrupted;
  const BenchFigures figures = figures_of(records, options.streams, looks);
  if (options.json) {
    fmt::print("{}\n",
               bench_json(figures).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", bench_text(figures));
  }
  return figures.failed == 0 ? kExitOk : kExitFailed;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<BenchCommand>();
  CLI::App* command = app.add_subcommand("bench", "Measure a running cluster under load");
  add_cluster_options(*command, options->cluster);
  command->add_option("--model", options->model, "Which deployment, if there are several");
  command->add_option("--streams", options->streams, "Requests at once")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  command->add_option("--requests", options->requests, "Requests of each stream, one after another")
      ->check(CLI::Range(1U, 100000U))
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens to generate in each request")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "About so many in each prompt")
      ->check(CLI::Range(1U, 100000U))
      ->capture_default_str();
  command->add_flag("--no-warmup", options->no_warmup, "Skip the short request before");
  command->add_flag("--json", options->json, "As JSON");
  command->footer(
      "Greedy, past the end of text, so that every request is as long as asked for.\n\n"
      "Examples:\n  troupe bench\n  troupe bench --streams 8 --tokens 128 --json");
  command->callback([options, &exit_code] { exit_code = bench(*options); });
}

}  // namespace troupe::cli

// troupe generate: one answer from the cluster, streamed. It goes on when daemons die meanwhile.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/answer_options.h"
#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct GenerateCommand {
  ClusterChoice cluster;
  std::string prompt, model, id;
  AnswerOptions answer;
  bool raw = false, no_stream = false, json = false, ignore_end = false, quiet = false;
};

struct Timing {
  Instant begin{}, first{}, end{};
  std::vector<uint32_t> tokens;
};

void print_json(const GenerateCommand& options, const GenerateRequest& request,
                const GenerateOutcome& outcome, const Timing& timing) {
  const bool any = !timing.tokens.empty();
  const nlohmann::ordered_json document = {
      {"id", outcome.id},
      {"text", outcome.text},
      {"reason", to_string(outcome.reason)},
      {"prompt_tokens", outcome.prompt_tokens},
      {"generated_tokens", outcome.generated_tokens},
      {"tokens", timing.tokens},
      {"resumptions", outcome.resumptions},
      {"first_token_seconds", any ? to_seconds(timing.first - timing.begin) : 0},
      {"total_seconds", to_seconds(timing.end - timing.begin)},
      {"temperature", options.answer.temperature},
      {"top_p", options.answer.top_p},
      {"top_k", options.answer.top_k},
      {"min_p", options.answer.min_p},
      {"seed", request.sampling.seed}};
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_figures(const GenerateOutcome& outcome, const Timing& timing) {
  if (timing.tokens.empty()) return;
  const double decoding = to_seconds(timing.end - timing.first);
  std::string line = fmt::format(
      "{} tokens in, {} out ({}); first token after {:.2f} s", outcome.prompt_tokens,
      outcome.generated_tokens, to_string(outcome.reason), to_seconds(timing.first - timing.begin));
  if (timing.tokens.size() > 1 && decoding > 0)
    line += fmt::format(", then {:.1f} tokens/s",
                        static_cast<double>(timing.tokens.size() - 1) / decoding);
  if (outcome.resumptions > 0)
    line += fmt::format("; resumed {} times after a lost connection", outcome.resumptions);
  fmt::print(stderr, "{}\n", styled(line, Style::kFaint, stderr));
}

Result<GenerateRequest> make_request(const GenerateCommand& options) {
  TROUPE_TRY(const SamplingParameters sampling, sampling_of(options.answer));
  TROUPE_TRY(const std::string prompt, prompt_or_input(options.prompt));
  GenerateRequest request;
  request.id = options.id.empty() ? fresh_request_id() : options.id;
  request.model = options.model;
  if (options.raw) {
    request.prompt = prompt;
  } else {
    request.messages = {{.role = "user", .content = prompt}};
  }
  request.max_tokens = options.answer.max_tokens;
  request.sampling = sampling;
  request.ignore_end = options.ignore_end;
  return request;
}

int generate(const GenerateCommand& options) {
  const Result<GenerateRequest> request = make_request(options);
  if (!request.ok()) return report_usage(request.error().message);

  // The client outlives the watch that may be using it, and the watch is there before the client's
  // threads.
  std::unique_ptr<Client> client;
  std::atomic<Client*> target{nullptr};
  std::atomic<bool> interrupted{false};
  const InterruptWatch watch([&] {
    if (interrupted.exchange(true) || !target) std::_Exit(kExitInterrupted);
    (void)target.load()->cancel(request.value().id);  // it may have ended by itself meanwhile
  });
  Result<std::unique_ptr<Client>> connected = connect_to(options.cluster, "troupe generate");
  if (!connected.ok()) return report(connected.error());
  client = std::move(connected).value();
  target = client.get();

  const bool stream = !options.json && !options.no_stream, terminal = is_terminal(stdout);
  const auto show = [&](const std::string& text) {
    fmt::print("{}", terminal ? printable(text) : text);
    std::fflush(stdout);
  };
  Timing timing;
  timing.begin = steady_now();
  const Result<GenerateOutcome> outcome =
      client->generate(request.value(), [&](const GeneratedPiece& piece) {
        if (timing.tokens.empty()) timing.first = steady_now();
        timing.tokens.push_back(piece.token);
        if (stream) show(piece.text);
        return !interrupted;
      });
  timing.end = steady_now();
  if (!outcome.ok()) {
    if (stream && !timing.tokens.empty()) fmt::print("\n");
    return interrupted ? kExitInterrupted : report(outcome.error());
  }
  if (options.json) {
    print_json(options, request.value(), outcome.value(), timing);
  } else {
    show(stream ? outcome.value().tail : outcome.value().text);
    fmt::print("\n");
    if (!options.quiet) print_figures(outcome.value(), timing);
  }
  return outcome.value().reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<GenerateCommand>();
  CLI::App* command = app.add_subcommand("generate", "Ask the cluster one thing");
  command->add_option("prompt", options->prompt, "The question; - or nothing reads standard input");
  add_cluster_options(*command, options->cluster);
  add_answer_options(*command, options->answer);
  command->add_option("--model", options->model, "Which deployment, if there are several");
  command->add_option("--id", options->id,
                      "Idempotency key: the same key and request give the same answer once");
  command->add_flag("--raw", options->raw,
                    "Continue the text as it stands, without the model's chat template");
  command->add_flag("--no-stream", options->no_stream, "Print the answer when it is complete");
  command->add_flag("--ignore-end", options->ignore_end,
                    "Go on past the model's end-of-text token");
  command->add_flag("--json", options->json, "The answer and its figures as JSON, at the end");
  command->add_flag("-q,--quiet", options->quiet, "The answer only, no figures");
  command->footer(
      "Examples:\n  troupe generate \"Why is the sky blue?\"\n"
      "  troupe generate -n 40 --raw \"Once upon a time\"\n"
      "  troupe generate --json -t 0.8 --seed 7 \"A haiku\" | jq -r .text");
  command->callback([options, &exit_code] { exit_code = generate(*options); });
}

}  // namespace troupe::cli

// troupe run: one answer in one process, without a cluster.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/answer_options.h"
#include "apps/cli/command.h"
#include "apps/cli/pull_model.h"
#include "apps/cli/terminal.h"
#include "apps/node/local.h"

namespace troupe::cli {
namespace {

struct RunCommand {
  std::string model, prompt;
  AnswerOptions answer;
  RunOptions run;
  bool json = false, quiet = false;
};

void print_summary(const RunCommand& options, const RunSummary& summary, const std::string& text) {
  const double decoding = summary.total_seconds - summary.first_token_seconds;
  const double rate =
      summary.generated_tokens > 1 && decoding > 0 ? (summary.generated_tokens - 1) / decoding : 0;
  if (options.json) {
    const nlohmann::ordered_json document = {{"text", text},
                                             {"reason", to_string(summary.reason)},
                                             {"prompt_tokens", summary.prompt_tokens},
                                             {"generated_tokens", summary.generated_tokens},
                                             {"load_seconds", summary.load_seconds},
                                             {"first_token_seconds", summary.first_token_seconds},
                                             {"total_seconds", summary.total_seconds},
                                             {"tokens_per_second", rate},
                                             {"seed", options.run.sampling.seed}};
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (!options.quiet) {
    const std::string line = fmt::format(
        "{} tokens in, {} out ({}); loaded in {:.2f} s, first token after {:.2f} s, then {:.1f} "
        "tokens/s",
        summary.prompt_tokens, summary.generated_tokens, to_string(summary.reason),
        summary.load_seconds, summary.first_token_seconds, rate);
    fmt::print(stderr, "{}\n", styled(line, Style::kFaint, stderr));
  }
}

int run(RunCommand& options) {
  const Result<SamplingParameters> sampling = sampling_of(options.answer);
  if (!sampling.ok()) return report_usage(sampling.error().message);
  const Result<std::string> prompt = prompt_or_input(options.prompt);
  if (!prompt.ok()) return report_usage(prompt.error().message);
  const Result<std::string> path = model_path(options.model);
  if (!path.ok()) return report(path.error());

  std::atomic<bool> cancelled{false};
  const InterruptWatch watch([&] {
    if (cancelled.exchange(true)) std::_Exit(kExitInterrupted);
  });
  options.run.model_path = path.value();
  options.run.prompt = prompt.value();
  options.run.max_tokens = options.answer.max_tokens;
  options.run.sampling = sampling.value();
  const bool terminal = is_terminal(stdout);
  std::string text;
  const Result<RunSummary> summary = run_local(
      options.run,
      [&](const std::string& piece) {
        text += piece;
        if (options.json) return;
        fmt::print("{}", terminal ? printable(piece) : piece);
        std::fflush(stdout);
      },
      cancelled);
  if (!options.json && !text.empty()) fmt::print("\n");
  if (!summary.ok()) return report(summary.error());
  print_summary(options, summary.value(), text);
  return summary.value().reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<RunCommand>();
  CLI::App* command = app.add_subcommand("run", "Answer one prompt in this process, no cluster");
  command->add_option("model", options->model, "A model's name or a GGUF file")->required();
  command->add_option("prompt", options->prompt, "The question; - or nothing reads standard input");
  add_answer_options(*command, options->answer);
  command->add_flag("--raw", options->run.raw,
                    "Continue the text as it stands, without the model's chat template");
  command->add_option("--context", options->run.context, "Tokens, prompt included")
      ->check(CLI::Range(16U, 1U << 20))
      ->capture_default_str();
  command->add_option("--threads", options->run.threads, "Threads of each stage")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command->add_option("--stages", options->run.stages, "Cut the model into so many stages")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command->add_option("--kernels", options->run.kernels, "auto, avx2 or reference")
      ->check(CLI::IsMember({"auto", "avx2", "reference"}))
      ->capture_default_str();
  command->add_flag("--ignore-end", options->run.ignore_end,
                    "Go on past the model's end-of-text token");
  command->add_flag("--json", options->json, "The answer and its figures as JSON, at the end");
  command->add_flag("-q,--quiet", options->quiet, "The answer only, no figures");
  command->footer(
      "Examples:\n  troupe run smollm2-135m \"Why is the sky blue?\"\n"
      "  troupe run ./model.gguf --raw -n 40 \"Once upon a time\"\n"
      "  git diff | troupe run smollm2-135m -t 0.7 --seed 1 -");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace troupe::cli

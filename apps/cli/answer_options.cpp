#include "apps/cli/answer_options.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/cli/terminal.h"
#include "base/ids.h"
#include "base/prng.h"

namespace troupe::cli {

void add_answer_options(CLI::App& command, AnswerOptions& options) {
  command.add_option("-n,--max-tokens", options.max_tokens, "At most so many tokens")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command
      .add_option("-t,--temperature", options.temperature,
                  "0: always the likeliest token; up to 100")
      ->capture_default_str();
  command
      .add_option("--top-p", options.top_p,
                  "Choose among the likeliest tokens whose probabilities reach this sum")
      ->capture_default_str();
  command
      .add_option("--top-k", options.top_k,
                  "Choose among so many of the likeliest tokens; 0: among all")
      ->capture_default_str();
  command
      .add_option("--min-p", options.min_p,
                  "Choose among tokens at least so likely, the likeliest being 1")
      ->capture_default_str();
  command.add_option("--seed", options.seed,
                     "The same seed gives the same answer; by default drawn by chance");
}

Result<SamplingParameters> sampling_of(const AnswerOptions& options) {
  const bool draw = options.seed == 0 && options.temperature > 0;
  const SamplingParameters parameters{.temperature = options.temperature,
                                      .top_p = options.top_p,
                                      .seed = draw ? random_u64() : options.seed,
                                      .top_k = options.top_k,
                                      .min_p = options.min_p};
  TROUPE_TRY_VOID(check_sampling(parameters));
  return parameters;
}

Result<std::string> prompt_or_input(const std::string& prompt) {
  constexpr size_t kPromptBytesMax = size_t{1} << 20;
  std::string text = prompt;
  if (text.empty() || text == "-") {
    if (text.empty() && is_terminal(stdin))
      return Error{ErrorCode::kInvalidArgument, "no prompt: give one, or pipe it in"};
    text.resize(kPromptBytesMax + 1);
    text.resize(std::fread(text.data(), 1, text.size(), stdin));
    if (std::ferror(stdin)) return Error{ErrorCode::kIo, "standard input cannot be read"};
    // A pipe's last line feed is the shell's, not the prompt's.
    while (!text.empty() && text.back() == '\n') text.pop_back();
  }
  if (text.empty()) return Error{ErrorCode::kInvalidArgument, "the prompt is empty"};
  if (text.size() > kPromptBytesMax)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the prompt has over {} bytes, the limit", kPromptBytesMax)};
  return text;
}

std::string fresh_request_id() {
  return "cli-" + to_hex(random_u64()) + to_hex(random_u64());
}

}  // namespace troupe::cli

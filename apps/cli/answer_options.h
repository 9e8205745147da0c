// The flags of commands that ask for text, the same in run, generate and chat.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/sampling.h"

namespace troupe::cli {

struct AnswerOptions {
  uint32_t max_tokens = 256;
  float temperature = 0.0F;
  float top_p = 1.0F;
  uint32_t top_k = 0;
  float min_p = 0.0F;
  uint64_t seed = 0;  // 0: drawn by chance
};

void add_answer_options(CLI::App& command, AnswerOptions& options);
// With a seed drawn where none was given and one is needed. Errors: kInvalidArgument.
Result<SamplingParameters> sampling_of(const AnswerOptions& options);

// The prompt itself, or standard input where it is empty or "-". Errors: kInvalidArgument (empty,
// over 1 MiB), kIo.
Result<std::string> prompt_or_input(const std::string& prompt);

// A request id nobody else uses.
std::string fresh_request_id();

}  // namespace troupe::cli

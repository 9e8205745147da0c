// The real model of the tests, SmolLM2-135M-Instruct, and the prompts they put to it. The
// environment variable TROUPE_SMOLLM2 holds the file's path; where it is unset, tests that need the
// model are skipped, never passed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/gguf.h"
#include "tests/support/pipeline.h"

namespace troupe::test {

// Nothing if the variable is unset.
std::optional<std::string> real_model_path();

// The lines of tests/data/prompts.txt (below TROUPE_SOURCE, or the current directory), each as a
// conversation of one message in the file's chat template. Greedy.
Result<std::vector<Prompt>> chat_prompts(const GgufFile& file);

}  // namespace troupe::test

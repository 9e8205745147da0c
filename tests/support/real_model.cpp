#include "tests/support/real_model.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "base/chat.h"
#include "models/chat_template.h"
#include "models/tokenizer.h"

namespace troupe::test {

std::optional<std::string> real_model_path() {
  const char* path = std::getenv("TROUPE_SMOLLM2");
  if (path == nullptr || *path == '\0') return std::nullopt;
  return path;
}

Result<std::vector<Prompt>> chat_prompts(const GgufFile& file) {
  const char* source = std::getenv("TROUPE_SOURCE");
  const std::string path =
      std::string(source == nullptr ? "." : source) + "/tests/data/prompts.txt";
  std::ifstream lines(path);
  if (!lines) return Error{ErrorCode::kNotFound, fmt::format("{}: cannot be read", path)};
  TROUPE_TRY(const Tokenizer tokenizer, Tokenizer::from(file));
  TROUPE_TRY(const ChatTemplate chat, ChatTemplate::from(file));
  std::vector<Prompt> prompts;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::vector<ChatMessage> messages = {{.role = "user", .content = line}};
    TROUPE_TRY(std::vector<uint32_t> tokens, chat.encode(tokenizer, messages));
    prompts.push_back({.tokens = std::move(tokens), .sampling = {}});
  }
  if (prompts.empty()) return Error{ErrorCode::kInvalidFile, fmt::format("{}: no prompts", path)};
  return prompts;
}

}  // namespace troupe::test

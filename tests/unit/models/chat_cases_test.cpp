// Chat templates against what Python's Jinja2 makes of them (tools/make_chat_cases.py): snippets
// that cover the language feature by feature, and whole templates of the file that
// TROUPE_CHAT_CASES names.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/chat_template.h"

namespace troupe::test {
namespace {

using Json = nlohmann::ordered_json;

std::string rendered(const Json& line) {
  std::vector<ChatMessage> messages;
  for (const Json& from : line["input"]["messages"]) {
    ChatMessage message{from["role"], from["content"]};
    message.name = from.value("name", "");
    message.tool_call_id = from.value("tool_call_id", "");
    if (from.contains("tool_calls")) message.tool_calls = from["tool_calls"].dump();
    messages.push_back(message);
  }
  ChatOptions options;
  options.unix_time = 86400;
  options.add_generation_prompt = line["input"].value("add_generation_prompt", true);
  if (line["input"].contains("tools")) options.tools = line["input"]["tools"].dump();
  if (line["input"].contains("variables"))
    for (const auto& [name, value] : line["input"]["variables"].items())
      options.variables.emplace_back(name, value.dump());
  const auto chat = ChatTemplate::from_text(line["template"].get<std::string>(), "<s>", "</s>");
  if (!chat.ok()) return "error: " + chat.error().message;
  const auto pieces = chat.value().render(messages, options);
  if (!pieces.ok()) return "error: " + pieces.error().message;
  std::string text;
  for (const ChatPiece& piece : pieces.value()) text += piece.text;
  return text;
}

size_t run_file(const std::string& path) {
  std::ifstream file(path);
  BOOST_REQUIRE_MESSAGE(file, path);
  size_t count = 0;
  for (std::string text; std::getline(file, text); ++count) {
    const Json line = Json::parse(text);
    const std::string result = rendered(line);
    const std::string name = line["template"].get<std::string>().substr(0, 300);
    if (line.contains("error"))
      BOOST_TEST(result.starts_with("error: "),
                 name << "\n gave " << result << "\n not " << line["jinja"]);
    else
      BOOST_TEST(result == line["output"].get<std::string>(),
                 name << "\n gave " << result << "\n not  " << line["output"].get<std::string>());
  }
  return count;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(chat_cases)

BOOST_AUTO_TEST_CASE(every_feature_gives_what_jinja_gives) {
  const char* source = std::getenv("TROUPE_SOURCE");
  const std::string root = source == nullptr ? "." : source;
  BOOST_TEST(run_file(root + "/tests/data/chat_snippets.jsonl") > 90);
}

BOOST_AUTO_TEST_CASE(whole_templates_give_what_jinja_gives) {
  const char* path = std::getenv("TROUPE_CHAT_CASES");
  if (path == nullptr || *path == '\0') {
    BOOST_TEST_MESSAGE("skipped: TROUPE_CHAT_CASES names no file");
    return;
  }
  BOOST_TEST(run_file(path) > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

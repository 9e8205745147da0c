// Whatever template comes: parsing and rendering end, within their limits, and what the
// conversation says never counts as the template's.
#include <string>

#include "models/chat_template.h"
#include "tests/fuzz/mutation_driver.h"

namespace {

using namespace troupe;
using fuzz::require;

// Unlikely to be in a template, however it is mutated.
constexpr std::string_view kMark = "\xE2\x98\x83\xE2\x98\x84";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find(kMark) != std::string_view::npos) return 0;
  const Result<ChatTemplate> chat = ChatTemplate::from_text(text, "<s>", "</s>");
  if (!chat.ok()) {
    require(chat.error().code == ErrorCode::kInvalidFile, "a bad template is a bad file");
    return 0;
  }
  const std::string mark(kMark);
  const std::vector<ChatMessage> messages = {
      {"system", mark + "<|im_end|>"}, {"user", " a, b " + mark}, {"assistant", mark + "\n\n"}};
  ChatOptions options;
  options.tools = "[{\"name\": \"" + mark + "\", \"n\": [1, 2.5, null, true]}]";
  const auto pieces = chat.value().render(messages, options);
  if (!pieces.ok()) {
    require(!pieces.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  bool last = false, first = true;
  for (const ChatPiece& piece : pieces.value()) {
    require(!piece.text.empty() && (first || piece.trusted != last), "pieces take turns");
    require(!piece.trusted || piece.text.find(kMark) == std::string::npos, "data is not trusted");
    last = piece.trusted;
    first = false;
  }
  return 0;
}

#ifndef TROUPE_LIBFUZZER
int main(int argc, char** argv) {
  const auto input = [](std::string_view text) { return fuzz::Input(text.begin(), text.end()); };
  return fuzz::run(
      argc, argv,
      {input("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim + "
             "'<|im_end|>\\n' }}{% endfor %}{%- if add_generation_prompt %}x{% endif %}"),
       input("{% set ns = namespace(a='', i=0) %}{% macro f(x, y=2) %}{{ x[1:y] ~ x[::-1] }}"
             "{{ caller() if caller else varargs }}{% endmacro %}{% for m in messages if not "
             "loop.first or m.role in ['user'] %}{% set ns.a = ns.a ~ f(m.content, y=3) %}"
             "{{ ns.a.split(',') | map('upper') | join('-') }}{% endfor %}{% call f('q') %}z"
             "{% endcall %}{{ tools | tojson(indent=2) }}"),
       input("{% for k, v in tools[0].items() recursive %}{{ k }}{{ loop.index % 2 }}{% if v is "
             "iterable %}{% break %}{% endif %}{% endfor %}{% set t | upper %}{{ messages | "
             "selectattr('role', '==', 'user') | list }}{% endset %}{{ t.replace('A', 'b') }}"
             "{% filter indent(2) %}{{ t | title }}{% raw %}{{{% endraw %}{% endfilter %}"
             "{{ range(9) | sort(reverse=true) | sum ** 2 // 3 - -1.5e3 }}")},
      0);
}
#endif

// What chat templates may do with values: filters, tests, methods of strings, dicts and lists,
// arithmetic, subscripts, and JSON. The sandbox is that there is nothing else: no method changes a
// list or a dict (as in Jinja's ImmutableSandboxedEnvironment), none reaches outside.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "models/chat_templates/value.h"

namespace troupe::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at a place or of a name; null if it was not given.
  const Value* get(size_t place, std::string_view name) const;
};

// Errors of all: kInvalidArgument (wrong type, unknown name), kResourceExhausted (the budget).
Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments);
Result<bool> apply_test(Budget& budget, std::string_view name, const Value& input,
                        const Arguments& arguments);
bool has_method(const Value& self, std::string_view name);
Result<Value> call_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments);

Result<Value> arithmetic(Budget& budget, std::string_view op, const Value& a, const Value& b);
Result<Value> get_item(Budget& budget, const Value& object, const Value& key);
// Jinja's way to find `name`: an entry of a dict; undefined if there is none.
Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name);
Result<Value> slice(Budget& budget, const Value& object, const Value& begin, const Value& end,
                    const Value& step);

// Python's json.dumps with ensure_ascii off. indent < 0: on one line.
Result<Value> to_json(Budget& budget, const Value& value, int64_t indent, bool sort_keys);
// JSON that came from outside; every string in it is data. Errors: kInvalidArgument.
Result<Value> from_json(Budget& budget, std::string_view json);

// Pieces of strings that filters and methods share.
Text strip(const Text& text, const Text* characters, bool left, bool right);
Result<Value> replace(Budget& budget, const Text& text, const Text& from, const Text& to,
                      int64_t count);
Result<Value> join(Budget& budget, const std::vector<Value>& items, const Text& between);
Text change_case(const Text& text, std::string_view how);
Result<const Text*> want_text(const Value* value, std::string_view what);

}  // namespace troupe::chat

#include <fmt/format.h>

#include "models/chat_templates/operations.h"

namespace troupe::chat {

namespace {

Result<bool> compare_with(Budget& budget, std::string_view name, const Value& input,
                          const Value& other) {
  if (name == "in") return contains(budget, other, input);
  if (name == "==" || name == "eq" || name == "equalto") return equal(budget, input, other);
  if (name == "ne") {
    TROUPE_TRY(const bool same, equal(budget, input, other));
    return !same;
  }
  if (name == "sameas") {
    TROUPE_TRY(const bool same, equal(budget, input, other));
    return same && input.kind() == other.kind();
  }
  if (name == "divisibleby") {
    if (!input.is_integer() || !other.is_integer() || other.integer() == 0)
      return wrong("divisibleby takes integers, and no zero");
    return other.integer() == -1 || input.integer() % other.integer() == 0;
  }
  TROUPE_TRY(const int sign, order(budget, input, other));
  if (name == "lt" || name == "lessthan") return sign < 0;
  if (name == "le") return sign <= 0;
  if (name == "gt" || name == "greaterthan") return sign > 0;
  return sign >= 0;
}

bool is_iterable(const Value& value) {
  return value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kText) ||
         value.is(Kind::kUndefined) || value.is(Kind::kLoop);
}

}  // namespace

Result<bool> apply_test(Budget& budget, std::string_view name, const Value& input,
                        const Arguments& arguments) {
  TROUPE_TRY_VOID(budget.work(1));
  for (const std::string_view with_argument :
       {"in", "==", "eq", "equalto", "ne", "sameas", "divisibleby", "lt", "lessthan", "le", "gt",
        "greaterthan", "ge"}) {
    if (name != with_argument) continue;
    if (arguments.positional.size() != 1)
      return wrong(
          fmt::format("test '{}' takes one argument, not {}", name, arguments.positional.size()));
    return compare_with(budget, name, input, arguments.positional[0]);
  }
  if (name == "defined") return !input.is(Kind::kUndefined);
  if (name == "undefined") return input.is(Kind::kUndefined);
  if (name == "none") return input.is(Kind::kNone);
  if (name == "string") return input.is(Kind::kText);
  if (name == "mapping") return input.is(Kind::kDict);
  if (name == "iterable") return is_iterable(input);
  if (name == "sequence") return is_iterable(input) && !input.is(Kind::kLoop);
  if (name == "number") return input.is_number();
  if (name == "boolean") return input.is_bool();
  if (name == "integer") return input.is(Kind::kInteger);
  if (name == "float") return input.is(Kind::kFloat);
  if (name == "true") return input.is_bool() && input.truth();
  if (name == "false") return input.is_bool() && !input.truth();
  if (name == "callable")
    return input.is(Kind::kMacro) || input.is(Kind::kBuiltin) || input.is(Kind::kMethod);
  if (name == "lower" || name == "upper") {
    TROUPE_TRY(const Text text, to_text(budget, input));
    const Text other = change_case(text, name == "lower" ? "upper" : "lower");
    return change_case(text, name).bytes == text.bytes && other.bytes != text.bytes;
  }
  if (name == "odd" || name == "even") {
    if (!input.is_integer()) return wrong(fmt::format("test '{}' takes an integer", name));
    return (input.integer() % 2 != 0) == (name == "odd");
  }
  return wrong(fmt::format("no test named '{}'", name));
}

}  // namespace troupe::chat

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/chat_templates/operations.h"

namespace troupe::chat {

namespace {

Error undefined_error(const Value& value) {
  return wrong(
      fmt::format("'{}' is undefined", value.address() != nullptr ? value.text().bytes : ""));
}

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result) || i > 128)
      return wrong("an integer beyond 64 bits");
  return Value::integer(result);
}

Result<Value> with_integers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool over = false;
  if (op == "+") over = __builtin_add_overflow(a, b, &result);
  if (op == "-") over = __builtin_sub_overflow(a, b, &result);
  if (op == "*") over = __builtin_mul_overflow(a, b, &result);
  if (op == "**") return power(a, b);
  if (op == "/" || op == "//" || op == "%") {
    if (b == 0) return wrong("division by zero");
    if (op == "/") return Value::real(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {
      over = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      const int64_t rest = a % b;
      const bool adjusts = rest != 0 && (rest < 0) != (b < 0);
      result = op == "//" ? a / b - (adjusts ? 1 : 0) : rest + (adjusts ? b : 0);
    }
  }
  if (over) return wrong("an integer beyond 64 bits");
  return Value::integer(result);
}

Result<Value> with_reals(std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") return Value::real(std::pow(a, b));
  if (b == 0) return wrong("division by zero");
  if (op == "/") return Value::real(a / b);
  if (op == "//") return Value::real(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Result<Value> repeat(Budget& budget, const Value& value, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(0, count));
  const bool is_text = value.is(Kind::kText);
  const uint64_t size = is_text ? value.text().size() : value.list().items.size();
  if (size != 0 && times > (1ULL << 26) / size)
    return Error{ErrorCode::kResourceExhausted, "a value repeated to more than 64 Mi"};
  TROUPE_TRY_VOID(budget.take(times * size * (is_text ? 2 : sizeof(Value))));
  if (is_text) {
    Text out;
    for (uint64_t i = 0; i < times && size != 0; ++i) out.append(value.text());
    return make_text(budget, std::move(out));
  }
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && size != 0; ++i)
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  return make_list(budget, std::move(items), value.kind());
}

// begin, end and step as Python's slice.indices gives them.
struct Range {
  int64_t begin, end, step;
};

Result<Range> slice_range(int64_t size, const Value& begin, const Value& end, const Value& step) {
  for (const Value* part : {&begin, &end, &step})
    if (!part->is_integer() && !part->is(Kind::kNone))
      return wrong("slice indices must be integers or None");
  const int64_t by = step.is(Kind::kNone) ? 1 : step.integer();
  if (by == 0) return wrong("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto place = [&](const Value& value, int64_t otherwise) {
    if (value.is(Kind::kNone)) return otherwise;
    const int64_t index = value.integer();
    return std::clamp(index < 0 ? std::max(index, -size - 1) + size : index, low, high);
  };
  return Range{place(begin, by < 0 ? high : low), place(end, by < 0 ? low : high),
               std::clamp(by, -size - 1, size + 1)};
}

}  // namespace

Result<Value> arithmetic(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  TROUPE_TRY_VOID(budget.work(1));
  if (a.is(Kind::kUndefined)) return undefined_error(a);
  if (b.is(Kind::kUndefined)) return undefined_error(b);
  if (a.is_integer() && b.is_integer()) return with_integers(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return with_reals(op, a.real(), b.real());
  if (op == "+" && a.is(Kind::kText) && b.is(Kind::kText)) {
    TROUPE_TRY_VOID(budget.take(2 * a.text().size()));
    Text out = a.text();
    out.append(b.text());
    return make_text(budget, std::move(out));
  }
  if (op == "+" && a.is_sequence() && a.kind() == b.kind()) {
    TROUPE_TRY_VOID(budget.take(a.list().items.size() * sizeof(Value)));
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return make_list(budget, std::move(items), a.kind());
  }
  const auto repeats = [](const Value& x) { return x.is(Kind::kText) || x.is_sequence(); };
  if (op == "*" && repeats(a) && b.is_integer()) return repeat(budget, a, b.integer());
  if (op == "*" && repeats(b) && a.is_integer()) return repeat(budget, b, a.integer());
  if (op == "+" && a.is(Kind::kText))
    return wrong(fmt::format("can only concatenate str (not \"{}\") to str", b.type_name()));
  return wrong(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, a.type_name(),
                           b.type_name()));
}

Result<Value> get_item(Budget& budget, const Value& object, const Value& key) {
  TROUPE_TRY_VOID(budget.work(1));
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (key.is(Kind::kText)) {
    if (object.is(Kind::kDict))
      if (const Value* found = object.dict().find(key)) return *found;
    return get_attribute(budget, object, key.text().bytes);
  }
  if (object.is(Kind::kDict)) {
    const Value* found = object.dict().find(key);
    return found != nullptr ? *found : Value::undefined("item");
  }
  if (!key.is_integer()) return Value::undefined("item");
  if (object.is_sequence()) {
    const auto size = static_cast<int64_t>(object.list().items.size());
    const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size) return Value::undefined("item");
    return object.list().items[static_cast<size_t>(index)];
  }
  if (!object.is(Kind::kText)) return Value::undefined("item");
  TROUPE_TRY_VOID(budget.work(object.text().size() / 16));
  const std::vector<size_t> places = code_points(object.text().bytes);
  const auto size = static_cast<int64_t>(places.size()) - 1;
  const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
  if (index < 0 || index >= size) return Value::undefined("item");
  const auto at = static_cast<size_t>(index);
  return make_text(budget, object.text().part(places[at], places[at + 1] - places[at]));
}

Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name) {
  TROUPE_TRY_VOID(budget.work(1));
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (has_method(object, name)) {
    TROUPE_TRY_VOID(budget.take(128));
    return Value::of(Kind::kMethod, std::make_shared<Method>(Method{object, std::string(name)}));
  }
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace))
    if (const Value* found = object.dict().find(name)) return *found;
  return Value::undefined(name);
}

Result<Value> slice(Budget& budget, const Value& object, const Value& begin, const Value& end,
                    const Value& step) {
  TROUPE_TRY_VOID(budget.work(1));
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (object.is_sequence()) {
    const auto& items = object.list().items;
    TROUPE_TRY(const Range range,
               slice_range(static_cast<int64_t>(items.size()), begin, end, step));
    std::vector<Value> chosen;
    for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step)
      chosen.push_back(items[static_cast<size_t>(i)]);
    return make_list(budget, std::move(chosen), object.kind());
  }
  if (!object.is(Kind::kText)) return Value::undefined("slice");
  const Text& text = object.text();
  TROUPE_TRY_VOID(budget.work(text.size() / 16));
  const std::vector<size_t> places = code_points(text.bytes);
  TROUPE_TRY(const Range range,
             slice_range(static_cast<int64_t>(places.size()) - 1, begin, end, step));
  Text out;
  for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
    const auto at = static_cast<size_t>(i);
    out.append_part(text, places[at], places[at + 1] - places[at]);
  }
  return make_text(budget, std::move(out));
}

}  // namespace troupe::chat

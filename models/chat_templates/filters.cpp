#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "models/chat_templates/operations.h"

namespace troupe::chat {

namespace {

// The error of a comparison inside std::stable_sort is kept and returned behind it.
Result<Value> sorted(Budget& budget, std::vector<Value> items, const Value* attribute, bool reverse,
                     bool by_case) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    Value key = item;
    if (attribute != nullptr) {
      TROUPE_TRY(key, get_item(budget, item, *attribute));
    }
    if (!by_case && key.is(Kind::kText)) key = Value::text(change_case(key.text(), "lower"));
    TROUPE_TRY_VOID(budget.take(128 + (key.is(Kind::kText) ? key.text().size() : 0)));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  // Only keys that have an order may reach the sort: look at all neighbours' kinds first.
  for (size_t i = 1; i < keyed.size(); ++i) {
    const bool numbers = keyed[0].first.is_number() && keyed[i].first.is_number();
    const bool texts = keyed[0].first.is(Kind::kText) && keyed[i].first.is(Kind::kText);
    const bool real_nan = keyed[i].first.is(Kind::kFloat) && std::isnan(keyed[i].first.real());
    if ((!numbers && !texts) || real_nan)
      return wrong(fmt::format("a {} and a {} cannot be sorted", keyed[0].first.type_name(),
                               keyed[i].first.type_name()));
  }
  TROUPE_TRY_VOID(budget.work(keyed.size() * 20));
  Budget inside;
  const auto before = [&](const auto& a, const auto& b) {
    const auto sign = order(inside, a.first, b.first);
    return sign.ok() && (reverse ? sign.value() > 0 : sign.value() < 0);
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  items.clear();
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return make_list(budget, std::move(items));
}

Result<Value> length(Budget& budget, const Value& input) {
  if (input.is(Kind::kText)) {
    TROUPE_TRY_VOID(budget.work(input.text().size() / 64));
    size_t points = 0;
    for (const char c : input.text().bytes)
      points += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    return Value::integer(static_cast<int64_t>(points));
  }
  if (input.is_sequence()) return Value::integer(static_cast<int64_t>(input.list().items.size()));
  if (input.is(Kind::kDict))
    return Value::integer(static_cast<int64_t>(input.dict().entries.size()));
  if (input.is(Kind::kUndefined)) return Value::integer(0);
  return wrong(fmt::format("object of type '{}' has no length", input.type_name()));
}

// name, or name.name…: a text of digits is an index.
Result<Value> attribute_of(Budget& budget, Value object, const Text& path) {
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = path.bytes.find('.', begin);
    if (end == std::string::npos) end = path.size();
    const Text part = path.part(begin, end - begin);
    TROUPE_TRY(object, get_item(budget, object, Value::text(part)));
    begin = end + 1;
  }
  return object;
}

// map, select, reject, selectattr, rejectattr.
Result<Value> map_items(Budget& budget, const Value& input, const Arguments& arguments) {
  TROUPE_TRY(std::vector<Value> items, iterate(budget, input));
  const Value* attribute = arguments.get(99, "attribute");
  const Value* otherwise = arguments.get(99, "default");
  for (Value& item : items) {
    if (attribute != nullptr) {
      TROUPE_TRY(const Text* path, want_text(attribute, "map's attribute"));
      TROUPE_TRY(item, attribute_of(budget, item, *path));
      if (item.is(Kind::kUndefined) && otherwise != nullptr) item = *otherwise;
      continue;
    }
    TROUPE_TRY(const Text* name, want_text(arguments.get(0, ""), "map's filter"));
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    if (name->bytes == "map") return wrong("map of map");
    TROUPE_TRY(item, apply_filter(budget, name->bytes, item, rest));
  }
  return make_list(budget, std::move(items));
}

Result<Value> choose(Budget& budget, std::string_view filter, const Value& input,
                     const Arguments& arguments) {
  const bool keep = filter.starts_with("select");
  const bool by_attribute = filter.ends_with("attr");
  TROUPE_TRY(const std::vector<Value> items, iterate(budget, input));
  Arguments rest = arguments;
  Text path, test;
  if (by_attribute) {
    TROUPE_TRY(const Text* name, want_text(rest.get(0, ""), "the attribute's name"));
    path = *name;
    rest.positional.erase(rest.positional.begin());
  }
  if (!rest.positional.empty()) {
    TROUPE_TRY(const Text* name, want_text(rest.get(0, ""), "the test's name"));
    test = *name;
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> chosen;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      TROUPE_TRY(subject, attribute_of(budget, item, path));
    }
    bool holds = subject.truth();
    if (test.size() != 0) {
      TROUPE_TRY(holds, apply_test(budget, test.bytes, subject, rest));
    }
    if (holds == keep) chosen.push_back(item);
  }
  return make_list(budget, std::move(chosen));
}

Result<Value> to_integer(const Value& input, const Value& otherwise) {
  if (input.is_integer()) return Value::integer(input.integer());
  if (input.is(Kind::kFloat) && std::abs(input.real()) < 9e18)
    return Value::integer(static_cast<int64_t>(input.real()));
  if (!input.is(Kind::kText)) return otherwise;
  const Text text = strip(input.text(), nullptr, true, true);
  std::string_view digits = text.bytes;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t whole = 0;
  double real = 0;
  const char* end = digits.data() + digits.size();
  const auto as_whole = std::from_chars(digits.data(), end, whole);
  if (as_whole.ec == std::errc() && as_whole.ptr == end) return Value::integer(whole);
  const auto as_real = std::from_chars(digits.data(), end, real);
  if (as_real.ec == std::errc() && as_real.ptr == end && std::abs(real) < 9e18)
    return Value::integer(static_cast<int64_t>(real));
  return otherwise;
}

Result<Value> to_real(const Value& input, const Value& otherwise) {
  if (input.is_number()) return Value::real(input.real());
  if (!input.is(Kind::kText)) return otherwise;
  const Text text = strip(input.text(), nullptr, true, true);
  double real = 0;
  const char* end = text.bytes.data() + text.size();
  const auto read = std::from_chars(text.bytes.data(), end, real);
  return read.ec == std::errc() && read.ptr == end ? Value::real(real) : otherwise;
}

Result<Value> indent(Budget& budget, const Text& text, const Arguments& arguments) {
  const Value* width = arguments.get(0, "width");
  const Value* first = arguments.get(1, "first");
  const Value* blank = arguments.get(2, "blank");
  Text margin = Text::of("    ", true);
  if (width != nullptr && width->is(Kind::kText)) margin = width->text();
  if (width != nullptr && width->is_integer()) {
    if (width->integer() > 1024) return wrong("indent of more than 1024");
    const auto spaces = static_cast<size_t>(std::max<int64_t>(0, width->integer()));
    margin = Text::of(std::string(spaces, ' '), true);
  }
  Text out;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = text.bytes.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const bool pads = begin == 0 ? first != nullptr && first->truth()
                                 : end > begin || (blank != nullptr && blank->truth());
    TROUPE_TRY_VOID(budget.take(pads ? 2 * margin.size() : 1));
    if (pads) out.append(margin);
    out.append_part(text, begin, std::min(end + 1, text.size()) - begin);
    begin = end + 1;
  }
  return make_text(budget, std::move(out));
}

Result<Value> unique(Budget& budget, const Value& input) {
  TROUPE_TRY(const std::vector<Value> items, iterate(budget, input));
  Dict seen;
  std::vector<Value> result;
  for (const Value& item : items) {
    const Value key = item.is(Kind::kText) ? Value::text(change_case(item.text(), "lower")) : item;
    if (seen.find(key) != nullptr) continue;
    TROUPE_TRY_VOID(put(budget, seen, key, Value::none()));
    result.push_back(item);
  }
  return make_list(budget, std::move(result));
}

Result<Value> dict_sorted(Budget& budget, const Value& input, const Arguments& arguments) {
  if (!input.is(Kind::kDict)) return wrong("dictsort takes a mapping");
  const Value* by = arguments.get(1, "by");
  const Value* by_case = arguments.get(0, "case_sensitive");
  const Value* reverse = arguments.get(2, "reverse");
  TROUPE_TRY(const Value items, call_method(budget, input, "items", {}));
  const bool by_value = by != nullptr && by->is(Kind::kText) && by->text().bytes == "value";
  const Value place = Value::integer(by_value ? 1 : 0);
  return sorted(budget, items.list().items, &place, reverse != nullptr && reverse->truth(),
                by_case != nullptr && by_case->truth());
}

Result<Value> sum(Budget& budget, const Value& input, const Arguments& arguments) {
  TROUPE_TRY(const std::vector<Value> items, iterate(budget, input));
  const Value* attribute = arguments.get(0, "attribute");
  Value total = Value::integer(0);
  for (Value item : items) {
    if (attribute != nullptr) {
      TROUPE_TRY(item, get_item(budget, item, *attribute));
    }
    TROUPE_TRY(total, arithmetic(budget, "+", total, item));
  }
  return total;
}

Result<Value> round_number(const Value& input, const Arguments& arguments) {
  if (!input.is_number()) return wrong("round takes a number");
  const Value* digits = arguments.get(0, "precision");
  const Value* method = arguments.get(1, "method");
  const int64_t precision = digits != nullptr && digits->is_integer() ? digits->integer() : 0;
  if (precision < 0 || precision > 15) return wrong("round to less than 0 or more than 15 digits");
  const std::string how =
      method != nullptr && method->is(Kind::kText) ? method->text().bytes : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil") return Value::real(std::ceil(input.real() * scale) / scale);
  if (how == "floor") return Value::real(std::floor(input.real() * scale) / scale);
  const std::string rounded = fmt::format("{:.{}f}", input.real(), static_cast<int>(precision));
  return to_real(Value::text(rounded, true), input);
}

Result<Value> first_or_last(Budget& budget, const Value& input, bool first) {
  TROUPE_TRY(const std::vector<Value> items, iterate(budget, input));
  if (items.empty()) return Value::undefined("no item");
  return first ? items.front() : items.back();
}

Result<Value> extreme(Budget& budget, const Value& input, bool greatest) {
  TROUPE_TRY(const std::vector<Value> items, iterate(budget, input));
  if (items.empty()) return Value::undefined("no item");
  TROUPE_TRY(const Value all, sorted(budget, items, nullptr, greatest, false));
  return all.list().items.front();
}

Result<Value> reversed(Budget& budget, const Value& input) {
  TROUPE_TRY(std::vector<Value> items, iterate(budget, input));
  std::reverse(items.begin(), items.end());
  if (!input.is(Kind::kText)) return make_list(budget, std::move(items));
  return join(budget, items, {});
}

Result<Value> json_filter(Budget& budget, const Value& input, const Arguments& arguments) {
  const Value* indent = arguments.get(1, "indent");
  if (!arguments.positional.empty() && indent == nullptr && arguments.positional[0].is_integer() &&
      !arguments.positional[0].is_bool())
    return wrong("tojson's indent must be named: its first argument is ensure_ascii");
  const Value* sort = arguments.get(3, "sort_keys");
  const bool has_indent = indent != nullptr && indent->is_integer();
  return to_json(budget, input, has_indent ? std::max<int64_t>(0, indent->integer()) : -1,
                 sort != nullptr && sort->truth());
}

Result<Value> filter_text(Budget& budget, std::string_view name, const Value& input,
                          const Arguments& arguments) {
  TROUPE_TRY(const Text text, to_text(budget, input));
  if (name == "string" || name == "safe" || name == "forceescape") return make_text(budget, text);
  if (name == "trim" || name == "replace" || name == "upper" || name == "lower" ||
      name == "capitalize") {
    const std::string_view method = name == "trim" ? "strip" : name;
    return call_method(budget, Value::text(text), method, arguments);
  }
  if (name == "words") return make_text(budget, change_case(text, name));
  if (name == "indent") return indent(budget, text, arguments);
  TROUPE_TRY(const Value words, call_method(budget, Value::text(text), "split", {}));
  return length(budget, words);  // wordcount
}

Result<Value> filter_list(Budget& budget, std::string_view name, const Value& input,
                          const Arguments& arguments) {
  if (name == "map") return map_items(budget, input, arguments);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return choose(budget, name, input, arguments);
  if (name == "first" || name == "last") return first_or_last(budget, input, name == "first");
  if (name == "min" || name == "max") return extreme(budget, input, name == "max");
  if (name == "reverse") return reversed(budget, input);
  if (name == "unique") return unique(budget, input);
  if (name == "sum") return sum(budget, input, arguments);
  TROUPE_TRY(std::vector<Value> items, iterate(budget, input));
  if (name == "list") return make_list(budget, std::move(items));
  if (name == "sort") {
    const Value* reverse = arguments.get(0, "reverse");
    const Value* by_case = arguments.get(1, "case_sensitive");
    return sorted(budget, std::move(items), arguments.get(2, "attribute"),
                  reverse != nullptr && reverse->truth(), by_case != nullptr && by_case->truth());
  }
  const Value* between = arguments.get(0, "d");
  const Value* attribute = arguments.get(1, "attribute");
  for (Value& item : items) {
    if (attribute == nullptr) break;
    TROUPE_TRY(item, get_item(budget, item, *attribute));
  }
  TROUPE_TRY(const Text separator, to_text(budget, between == nullptr ? Value() : *between));
  return join(budget, items, separator);
}

}  // namespace

Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments) {
  TROUPE_TRY_VOID(budget.work(1));
  const Value* first = arguments.get(0, "default_value");
  if (name == "default" || name == "d") {
    const Value* also_false = arguments.get(1, "boolean");
    const bool absent = input.is(Kind::kUndefined) ||
                        (also_false != nullptr && also_false->truth() && !input.truth());
    if (!absent) return input;
    return first == nullptr ? Value::text("", true) : *first;
  }
  if (name == "tojson") return json_filter(budget, input, arguments);
  if (name == "length" || name == "count") return length(budget, input);
  if (name == "int") {
    const Value* other = arguments.get(0, "default");
    return to_integer(input, other == nullptr ? Value::integer(0) : *other);
  }
  if (name == "float") {
    const Value* other = arguments.get(0, "default");
    return to_real(input, other == nullptr ? Value::real(0) : *other);
  }
  if (name == "abs") {
    if (input.is(Kind::kFloat)) return Value::real(std::abs(input.real()));
    if (!input.is_integer() || input.integer() == INT64_MIN) return wrong("abs takes a number");
    return Value::integer(std::abs(input.integer()));
  }
  if (name == "round") return round_number(input, arguments);
  if (name == "dictsort") return dict_sorted(budget, input, arguments);
  if (name == "items") {
    if (input.is(Kind::kUndefined)) return make_list(budget, {});
    if (!input.is(Kind::kDict)) return wrong("Can only get item pairs from a mapping.");
    return call_method(budget, input, "items", {});
  }
  if (name == "attr" && first != nullptr && first->is(Kind::kText))
    return has_method(input, first->text().bytes) || !input.is(Kind::kNamespace)
               ? Value::undefined(first->text().bytes)
               : get_attribute(budget, input, first->text().bytes);
  for (const std::string_view text : {"string", "safe", "trim", "replace", "upper", "lower",
                                      "title", "capitalize", "indent", "wordcount"})
    if (name == text)
      return filter_text(budget, name == "title" ? "words" : name, input, arguments);
  for (const std::string_view list :
       {"map", "select", "reject", "selectattr", "rejectattr", "first", "last", "min", "max",
        "reverse", "unique", "sum", "list", "sort", "join"})
    if (name == list) return filter_list(budget, name, input, arguments);
  return wrong(fmt::format("no filter named '{}'", name));
}

}  // namespace troupe::chat

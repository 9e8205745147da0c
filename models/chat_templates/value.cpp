#include "models/chat_templates/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace troupe::chat {

Error wrong(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Result<void> Budget::work(uint64_t count) {
  if (count > steps) {
    steps = 0;
    return Error{ErrorCode::kResourceExhausted, "the chat template takes more than 4000000 steps"};
  }
  steps -= count;
  return {};
}

Result<void> Budget::search(uint64_t text_bytes, uint64_t part_bytes) {
  return work(1 + text_bytes / 64 + text_bytes * part_bytes / 4096);
}

Result<void> Budget::take(uint64_t byte_count) {
  TROUPE_TRY_VOID(work(1 + byte_count / 256));
  if (byte_count > bytes) {
    bytes = 0;
    return Error{ErrorCode::kResourceExhausted, "the chat template makes more than 256 MiB"};
  }
  bytes -= byte_count;
  return {};
}

Value Value::undefined(std::string_view name) {
  Value value;
  value.object_ = std::make_shared<Text>(Text::of(name, true));
  return value;
}
Value Value::boolean(bool flag) {
  Value value(Kind::kBool);
  value.integer_ = flag ? 1 : 0;
  return value;
}
Value Value::integer(int64_t number) {
  Value value(Kind::kInteger);
  value.integer_ = number;
  return value;
}
Value Value::real(double number) {
  Value value(Kind::kFloat);
  value.real_ = number;
  return value;
}
Value Value::text(Text text) {
  return of(Kind::kText, std::make_shared<Text>(std::move(text)));
}
Value Value::builtin(std::string_view name) {
  return of(Kind::kBuiltin, std::make_shared<Text>(Text::of(name, true)));
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return integer_ != 0;
    case Kind::kFloat:
      return real_ != 0;
    case Kind::kText:
      return text().size() != 0;
    case Kind::kList:
    case Kind::kTuple:
      return !list().items.empty();
    case Kind::kDict:
      return !dict().entries.empty();
    default:
      return true;
  }
}

uint32_t Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
      return list().depth;
    case Kind::kDict:
      return dict().depth;
    case Kind::kMethod:
      return method().self.depth() + 1;
    case Kind::kLoop:
      return loop().items_depth + 1;
    default:
      return 0;
  }
}

const char* Value::type_name() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    default:
      return "function";
  }
}

namespace {

// Equal keys have equal names: 1, 1.0 and true are one key, as in Python.
std::optional<std::string> key_name(const Value& key) {
  if (key.is(Kind::kText)) return "s" + key.text().bytes;
  if (key.is_integer()) return fmt::format("i{}", key.integer());
  if (key.is(Kind::kNone)) return "n";
  if (!key.is(Kind::kFloat)) return std::nullopt;
  const double number = key.real();
  if (std::trunc(number) == number && std::abs(number) < 9e15)
    return fmt::format("i{}", static_cast<int64_t>(number));
  return fmt::format("f{}", number);
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  const auto name = key_name(key);
  if (!name) return nullptr;
  const auto found = index.find(*name);
  return found == index.end() ? nullptr : &entries[found->second].second;
}
const Value* Dict::find(std::string_view key) const {
  const auto found = index.find("s" + std::string(key));
  return found == index.end() ? nullptr : &entries[found->second].second;
}
bool Dict::set(const Value& key, Value value) {
  const auto name = key_name(key);
  if (!name) return false;
  depth = std::max(depth, value.depth() + 1);
  const auto [place, added] = index.emplace(*name, entries.size());
  if (added)
    entries.emplace_back(key, std::move(value));
  else
    entries[place->second].second = std::move(value);
  return true;
}

namespace {

Result<void> check_nesting(uint32_t depth) {
  if (depth <= kValueDepthMax) return {};
  return wrong(fmt::format("values nested more than {} deep", kValueDepthMax));
}

}  // namespace

Result<Value> make_list(Budget& budget, std::vector<Value> items, Kind kind) {
  TROUPE_TRY_VOID(budget.take(64 + items.size() * sizeof(Value)));
  auto list = std::make_shared<List>();
  for (const Value& item : items) list->depth = std::max(list->depth, item.depth() + 1);
  TROUPE_TRY_VOID(check_nesting(list->depth));
  list->items = std::move(items);
  return Value::of(kind, std::move(list));
}

Result<Value> make_text(Budget& budget, Text text) {
  TROUPE_TRY_VOID(budget.take(96 + 2 * text.size()));
  return Value::text(std::move(text));
}

Result<void> put(Budget& budget, Dict& dict, const Value& key, Value value) {
  TROUPE_TRY_VOID(budget.take(256 + (key.is(Kind::kText) ? key.text().size() : 0)));
  if (!dict.set(key, std::move(value)))
    return wrong(fmt::format("a {} cannot be a key", key.type_name()));
  return check_nesting(dict.depth);
}

Result<Value> make_dict(Budget& budget, Dict dict) {
  TROUPE_TRY_VOID(budget.take(128));
  TROUPE_TRY_VOID(check_nesting(dict.depth));
  return Value::of(Kind::kDict, std::make_shared<Dict>(std::move(dict)));
}

Result<bool> equal(Budget& budget, const Value& a, const Value& b) {
  TROUPE_TRY_VOID(budget.work(1));
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kText)) {
    TROUPE_TRY_VOID(budget.work(std::min(a.text().size(), b.text().size()) / 256));
    return a.text().bytes == b.text().bytes;
  }
  if (a.is_sequence()) {
    if (a.list().items.size() != b.list().items.size()) return false;
    for (size_t i = 0; i < a.list().items.size(); ++i) {
      TROUPE_TRY(const bool same, equal(budget, a.list().items[i], b.list().items[i]));
      if (!same) return false;
    }
    return true;
  }
  if (a.is(Kind::kDict)) {
    if (a.dict().entries.size() != b.dict().entries.size()) return false;
    for (const auto& [key, value] : a.dict().entries) {
      const Value* other = b.dict().find(key);
      if (other == nullptr) return false;
      TROUPE_TRY(const bool same, equal(budget, value, *other));
      if (!same) return false;
    }
    return true;
  }
  if (a.is(Kind::kUndefined) || a.is(Kind::kNone)) return true;
  return a.address() == b.address();
}

Result<int> order(Budget& budget, const Value& a, const Value& b) {
  TROUPE_TRY_VOID(budget.work(1));
  const auto compare = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return compare(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return compare(a.real(), b.real());
  if (a.is(Kind::kText) && b.is(Kind::kText)) {
    TROUPE_TRY_VOID(budget.work(std::min(a.text().size(), b.text().size()) / 256));
    return compare(a.text().bytes, b.text().bytes);
  }
  if (a.is_sequence() && b.kind() == a.kind()) {
    const auto &x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      TROUPE_TRY(const bool same, equal(budget, x[i], y[i]));
      if (!same) return order(budget, x[i], y[i]);
    }
    return compare(x.size(), y.size());
  }
  if (a.is(Kind::kUndefined) || b.is(Kind::kUndefined)) {
    const Value& missing = a.is(Kind::kUndefined) ? a : b;
    return wrong(fmt::format("'{}' is undefined", missing.address() ? missing.text().bytes : ""));
  }
  return wrong(fmt::format("a {} and a {} have no order", a.type_name(), b.type_name()));
}

Result<bool> contains(Budget& budget, const Value& container, const Value& item) {
  if (container.is(Kind::kText)) {
    if (!item.is(Kind::kText))
      return wrong(
          fmt::format("'in <string>' needs a string on its left, not {}", item.type_name()));
    TROUPE_TRY_VOID(budget.search(container.text().size(), item.text().size()));
    return container.text().bytes.find(item.text().bytes) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    TROUPE_TRY_VOID(budget.work(1));
    return container.dict().find(item) != nullptr;
  }
  if (container.is(Kind::kUndefined)) return false;
  if (!container.is_sequence())
    return wrong(fmt::format("a {} contains nothing", container.type_name()));
  for (const Value& element : container.list().items) {
    TROUPE_TRY(const bool same, equal(budget, element, item));
    if (same) return true;
  }
  return false;
}

Result<std::vector<Value>> iterate(Budget& budget, const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence()) {
    items = value.list().items;
  } else if (value.is(Kind::kDict)) {
    for (const auto& [key, entry] : value.dict().entries) items.push_back(key);
  } else if (value.is(Kind::kText)) {
    const Text& text = value.text();
    TROUPE_TRY_VOID(budget.take(text.size() * 160));
    for (size_t i = 0; i < text.size();) {
      const size_t bytes = code_point_bytes(text.bytes, i);
      items.push_back(Value::text(text.part(i, bytes)));
      i += bytes;
    }
  } else if (!value.is(Kind::kUndefined)) {
    return wrong(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  TROUPE_TRY_VOID(budget.take(items.size() * sizeof(Value)));
  return items;
}

size_t code_point_bytes(std::string_view text, size_t offset) {
  size_t end = offset + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
  return end - offset;
}

std::vector<size_t> code_points(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); i += code_point_bytes(text, i)) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

// The shortest digits that read back as the same number, as Python prints them.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  std::string text = size != 0 && (size < 1e-4 || size >= 1e16) ? fmt::format("{:e}", value) : "";
  if (text.empty()) {
    text = fmt::format("{}", value);
    if (text.find('e') != std::string::npos) text = fmt::format("{:.0f}", value);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
  }
  // The shortest mantissa: fmt's own shortest form, with Python's exponent of two digits.
  text = fmt::format("{}", value);
  const size_t e = text.find('e');
  if (e == std::string::npos) return text;
  std::string mantissa = text.substr(0, e);
  if (mantissa.ends_with(".0")) mantissa.resize(mantissa.size() - 2);
  return mantissa + text.substr(e);
}

namespace {

// Python's quotes and escapes. What is not an escape keeps its origin.
void write_quoted(const Text& text, Text& out) {
  const bool single = text.bytes.find('\'') != std::string::npos;
  const char quote = single && text.bytes.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1), true);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes[i];
    const bool trusted = text.trust[i] != 0;
    if (c == quote || c == '\\') {
      out.append("\\", trusted);
      out.append(std::string_view(&c, 1), trusted);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", trusted);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out.append(fmt::format("\\x{:02x}", static_cast<unsigned char>(c)), trusted);
    } else {
      out.append(std::string_view(&c, 1), trusted);
    }
  }
  out.append(std::string_view(&quote, 1), true);
}

Result<void> write_items(Budget& budget, const Value& value, Text& out) {
  const bool tuple = value.is(Kind::kTuple);
  out.append(tuple ? "(" : "[", true);
  bool first = true;
  for (const Value& item : value.list().items) {
    if (!first) out.append(", ", true);
    first = false;
    TROUPE_TRY_VOID(write_repr(budget, item, out));
  }
  if (tuple && value.list().items.size() == 1) out.append(",", true);
  out.append(tuple ? ")" : "]", true);
  return {};
}

Result<void> write_entries(Budget& budget, const Value& value, Text& out) {
  out.append("{", true);
  bool first = true;
  for (const auto& [key, entry] : value.dict().entries) {
    if (!first) out.append(", ", true);
    first = false;
    TROUPE_TRY_VOID(write_repr(budget, key, out));
    out.append(": ", true);
    TROUPE_TRY_VOID(write_repr(budget, entry, out));
  }
  out.append("}", true);
  return {};
}

}  // namespace

// Digits are not trusted: a number may be data, and might complete a special token's text.
Result<void> write_repr(Budget& budget, const Value& value, Text& out) {
  TROUPE_TRY_VOID(budget.take(16 + (value.is(Kind::kText) ? 4 * value.text().size() : 0)));
  switch (value.kind()) {
    case Kind::kUndefined:
      out.append("Undefined", true);
      return {};
    case Kind::kNone:
      out.append("None", true);
      return {};
    case Kind::kBool:
      out.append(value.integer() != 0 ? "True" : "False", false);
      return {};
    case Kind::kInteger:
      out.append(fmt::format("{}", value.integer()), false);
      return {};
    case Kind::kFloat:
      out.append(float_repr(value.real()), false);
      return {};
    case Kind::kText:
      write_quoted(value.text(), out);
      return {};
    case Kind::kList:
    case Kind::kTuple:
      return write_items(budget, value, out);
    case Kind::kDict:
      return write_entries(budget, value, out);
    default:
      out.append(fmt::format("<{}>", value.type_name()), true);
      return {};
  }
}

Result<Text> to_text(Budget& budget, const Value& value) {
  if (value.is(Kind::kText)) {
    TROUPE_TRY_VOID(budget.take(2 * value.text().size()));
    return value.text();
  }
  Text text;
  if (!value.is(Kind::kUndefined)) TROUPE_TRY_VOID(write_repr(budget, value, text));
  return text;
}

}  // namespace troupe::chat

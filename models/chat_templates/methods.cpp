#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/chat_templates/operations.h"

namespace troupe::chat {

namespace {

constexpr std::array<std::string_view, 17> kTextMethods = {
    "strip", "lstrip", "rstrip",     "split",        "rsplit",      "splitlines",
    "upper", "lower",  "startswith", "endswith",     "replace",     "title",
    "join",  "find",   "capitalize", "removeprefix", "removesuffix"};
constexpr std::array<std::string_view, 5> kTextTests = {"count", "isdigit", "isspace", "isupper",
                                                        "isalpha"};
constexpr std::array<std::string_view, 4> kDictMethods = {"items", "keys", "values", "get"};
constexpr std::array<std::string_view, 2> kListMethods = {"index", "count"};

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
}

// Bytes of the white space at `offset`: ASCII's, and the wide spaces of Unicode. 0 if none.
size_t space_bytes(std::string_view text, size_t offset) {
  if (is_space(text[offset])) return 1;
  constexpr std::array<std::string_view, 9> kWide = {"\xC2\xA0",     "\xC2\x85",     "\xE1\x9A\x80",
                                                     "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
                                                     "\xE2\x81\x9F", "\xE3\x80\x80", ""};
  for (const std::string_view wide : kWide)
    if (!wide.empty() && text.substr(offset).starts_with(wide)) return wide.size();
  const std::string_view rest = text.substr(offset);
  if (rest.size() >= 3 && rest.starts_with("\xE2\x80") &&
      static_cast<unsigned char>(rest[2]) >= 0x80 && static_cast<unsigned char>(rest[2]) <= 0x8A)
    return 3;
  return 0;
}

size_t start_of_last(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
  return start;
}

Result<Value> split_at(Budget& budget, const Text& text, const Text& separator, int64_t count,
                       bool from_right) {
  if (separator.size() == 0) return wrong("empty separator");
  TROUPE_TRY_VOID(budget.search(text.size(), separator.size()));
  std::vector<Value> parts;
  size_t begin = 0, end = text.size();
  while (count != 0) {
    const size_t found =
        from_right
            ? (end < separator.size() ? std::string::npos
                                      : text.bytes.rfind(separator.bytes, end - separator.size()))
            : text.bytes.find(separator.bytes, begin);
    if (found == std::string::npos) break;
    TROUPE_TRY_VOID(budget.take(128));
    if (from_right) {
      const size_t after = found + separator.size();
      parts.push_back(Value::text(text.part(after, end - after)));
      end = found;
    } else {
      parts.push_back(Value::text(text.part(begin, found - begin)));
      begin = found + separator.size();
    }
    --count;
  }
  parts.push_back(Value::text(text.part(begin, end - begin)));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return make_list(budget, std::move(parts));
}

Result<Value> split_words(Budget& budget, const Text& text, int64_t count) {
  std::vector<Value> parts;
  size_t i = 0;
  while (i < text.size()) {
    if (const size_t space = space_bytes(text.bytes, i)) {
      i += space;
      continue;
    }
    TROUPE_TRY_VOID(budget.take(128));
    if (count-- == 0) {
      parts.push_back(Value::text(strip(text.part(i), nullptr, false, true)));
      break;
    }
    size_t end = i;
    while (end < text.size() && space_bytes(text.bytes, end) == 0)
      end += code_point_bytes(text.bytes, end);
    parts.push_back(Value::text(text.part(i, end - i)));
    i = end;
  }
  return make_list(budget, std::move(parts));
}

Result<Value> split(Budget& budget, const Text& text, bool from_right, const Arguments& arguments) {
  const Value* separator = arguments.get(0, "sep");
  const Value* limit = arguments.get(1, "maxsplit");
  const int64_t count = limit != nullptr && limit->is_integer() ? limit->integer() : -1;
  if (separator == nullptr || separator->is(Kind::kNone)) {
    if (from_right && count >= 0) return wrong("rsplit with a limit needs a separator");
    return split_words(budget, text, count);
  }
  TROUPE_TRY(const Text* by, want_text(separator, "a separator"));
  return split_at(budget, text, *by, count, from_right);
}

Result<Value> split_lines(Budget& budget, const Text& text, bool keep_ends) {
  std::vector<Value> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.bytes.find_first_of("\n\r\v\f", begin);
    if (end == std::string::npos) end = text.size();
    size_t next = std::min(end + 1, text.size());
    if (next < text.size() && text.bytes[end] == '\r' && text.bytes[next] == '\n') ++next;
    TROUPE_TRY_VOID(budget.take(128));
    lines.push_back(Value::text(text.part(begin, (keep_ends ? next : end) - begin)));
    begin = next;
  }
  return make_list(budget, std::move(lines));
}

// startswith, endswith: of one text or of any of a tuple.
Result<Value> has_edge(const Text& text, bool start, const Arguments& arguments) {
  const Value* edge = arguments.get(0, "");
  std::vector<Value> edges;
  if (edge != nullptr && edge->is(Kind::kTuple))
    edges = edge->list().items;
  else if (edge != nullptr)
    edges.push_back(*edge);
  if (edges.empty() && edge == nullptr) return wrong("startswith and endswith need an argument");
  for (const Value& one : edges) {
    TROUPE_TRY(const Text* part, want_text(&one, "an argument of startswith or endswith"));
    if (start ? text.bytes.starts_with(part->bytes) : text.bytes.ends_with(part->bytes))
      return Value::boolean(true);
  }
  return Value::boolean(false);
}

Result<Value> test_characters(const Text& text, std::string_view name) {
  bool all = text.size() != 0;
  bool any_upper = false;
  for (const char c : text.bytes) {
    const bool digit = c >= '0' && c <= '9';
    const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    any_upper |= upper;
    all &= name == "isdigit"   ? digit
           : name == "isspace" ? is_space(c)
           : name == "isalpha" ? upper || lower
                               : !lower;
  }
  return Value::boolean(all && (name != "isupper" || any_upper));
}

Result<Value> count_in(Budget& budget, const Text& text, const Text& part) {
  TROUPE_TRY_VOID(budget.work(text.size() / 16));
  if (part.size() == 0) return Value::integer(static_cast<int64_t>(code_points(text.bytes).size()));
  int64_t count = 0;
  for (size_t i = text.bytes.find(part.bytes); i != std::string::npos;
       i = text.bytes.find(part.bytes, i + part.size()))
    ++count;
  return Value::integer(count);
}

Result<Value> search_text(Budget& budget, const Text& text, std::string_view name,
                          const Arguments& arguments) {
  TROUPE_TRY(const Text* part, want_text(arguments.get(0, ""), "an argument of a method"));
  TROUPE_TRY_VOID(budget.search(text.size(), part->size()));
  if (name == "count") return count_in(budget, text, *part);
  if (name == "find") {
    const size_t found = text.bytes.find(part->bytes);
    if (found == std::string::npos) return Value::integer(-1);
    const size_t points = code_points(std::string_view(text.bytes).substr(0, found)).size() - 1;
    return Value::integer(static_cast<int64_t>(points));
  }
  if (name == "removeprefix")
    return make_text(budget, text.bytes.starts_with(part->bytes) ? text.part(part->size()) : text);
  return make_text(
      budget, text.bytes.ends_with(part->bytes) ? text.part(0, text.size() - part->size()) : text);
}

Result<Value> call_text(Budget& budget, const Text& text, std::string_view name,
                        const Arguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* given = arguments.get(0, "chars");
    const Text* characters = nullptr;
    if (given != nullptr && !given->is(Kind::kNone)) {
      TROUPE_TRY(characters, want_text(given, "the argument of strip"));
      TROUPE_TRY_VOID(budget.work(characters->size() * (1 + text.size() / 64)));
    }
    return make_text(budget, strip(text, characters, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") return split(budget, text, name[0] == 'r', arguments);
  if (name == "splitlines") {
    const Value* keep = arguments.get(0, "keepends");
    return split_lines(budget, text, keep != nullptr && keep->truth());
  }
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize")
    return make_text(budget, change_case(text, name));
  if (name == "startswith" || name == "endswith")
    return has_edge(text, name == "startswith", arguments);
  if (name == "replace") {
    TROUPE_TRY(const Text* from, want_text(arguments.get(0, "old"), "what replace looks for"));
    TROUPE_TRY(const Text* to, want_text(arguments.get(1, "new"), "what replace puts there"));
    const Value* count = arguments.get(2, "count");
    return replace(budget, text, *from, *to,
                   count != nullptr && count->is_integer() ? count->integer() : -1);
  }
  if (name == "join") {
    const Value* items = arguments.get(0, "");
    if (items == nullptr) return wrong("join needs an argument");
    TROUPE_TRY(const std::vector<Value> parts, iterate(budget, *items));
    for (const Value& part : parts) {
      const auto is_text = want_text(&part, "an item to join");
      if (!is_text.ok()) return is_text.error();
    }
    return join(budget, parts, text);
  }
  if (name.starts_with("is")) return test_characters(text, name);
  return search_text(budget, text, name, arguments);
}

Result<Value> call_dict(Budget& budget, const Value& self, std::string_view name,
                        const Arguments& arguments) {
  if (name == "get") {
    const Value* key = arguments.get(0, "key");
    if (key == nullptr) return wrong("get needs a key");
    if (const Value* found = self.dict().find(*key)) return *found;
    const Value* otherwise = arguments.get(1, "default");
    return otherwise != nullptr ? *otherwise : Value::none();
  }
  std::vector<Value> result;
  for (const auto& [key, value] : self.dict().entries) {
    if (name == "items") {
      TROUPE_TRY(Value pair, make_list(budget, {key, value}, Kind::kTuple));
      result.push_back(std::move(pair));
    } else {
      result.push_back(name == "keys" ? key : value);
    }
  }
  return make_list(budget, std::move(result));
}

Result<Value> call_list(Budget& budget, const Value& self, std::string_view name,
                        const Arguments& arguments) {
  const Value* item = arguments.get(0, "");
  if (item == nullptr) return wrong(fmt::format("{} needs an argument", name));
  int64_t count = 0;
  for (size_t i = 0; i < self.list().items.size(); ++i) {
    TROUPE_TRY(const bool same, equal(budget, self.list().items[i], *item));
    if (same && name == "index") return Value::integer(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") return wrong("the list has no such item");
  return Value::integer(count);
}

}  // namespace

const Value* Arguments::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named)
    if (!name.empty() && key == name) return &value;
  return nullptr;
}

Result<const Text*> want_text(const Value* value, std::string_view what) {
  if (value != nullptr && value->is(Kind::kText)) return &value->text();
  return wrong(fmt::format("{} must be a string, not {}", what,
                           value == nullptr ? "nothing" : value->type_name()));
}

Text strip(const Text& text, const Text* characters, bool left, bool right) {
  size_t begin = 0, end = text.size();
  const std::string_view all = text.bytes;
  // The bytes to drop at a place: a space, or one of the characters.
  const auto bytes_at = [&](size_t offset) -> size_t {
    if (characters == nullptr) return space_bytes(all, offset);
    const size_t bytes = code_point_bytes(all, offset);
    return characters->bytes.find(all.substr(offset, bytes)) == std::string::npos ? 0 : bytes;
  };
  while (left && begin < end) {
    const size_t bytes = bytes_at(begin);
    if (bytes == 0) break;
    begin += bytes;
  }
  while (right && end > begin) {
    const size_t last = start_of_last(all, end);
    if (last < begin || bytes_at(last) == 0) break;
    end = last;
  }
  return text.part(begin, end - begin);
}

Result<Value> replace(Budget& budget, const Text& text, const Text& from, const Text& to,
                      int64_t count) {
  TROUPE_TRY_VOID(budget.search(text.size(), from.size()));
  Text out;
  size_t place = 0;
  while (count != 0 && place <= text.size()) {
    const size_t found = text.bytes.find(from.bytes, place);
    if (found == std::string::npos) break;
    TROUPE_TRY_VOID(budget.take(2 * to.size()));
    out.append_part(text, place, found - place);
    out.append(to);
    place = found + from.size();
    if (from.size() == 0) {
      if (place == text.size()) return make_text(budget, std::move(out));
      const size_t bytes = code_point_bytes(text.bytes, place);
      out.append_part(text, place, bytes);
      place += bytes;
    }
    --count;
  }
  if (place < text.size()) out.append(text.part(place));
  return make_text(budget, std::move(out));
}

Result<Value> join(Budget& budget, const std::vector<Value>& items, const Text& between) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    TROUPE_TRY_VOID(budget.take(2 * between.size()));
    if (i != 0) out.append(between);
    TROUPE_TRY(const Text part, to_text(budget, items[i]));
    out.append(part);
  }
  return make_text(budget, std::move(out));
}

// upper, lower, title, capitalize, and Jinja's title filter (words); letters of ASCII only, others
// stay as they are.
Text change_case(const Text& text, std::string_view how) {
  Text result = text;
  bool starts = true;
  for (char& c : result.bytes) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    const char upper = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    const bool letter = lower != upper || (static_cast<unsigned char>(c) & 0x80U) != 0;
    c = how == "upper" || (how != "lower" && starts) ? upper : lower;
    // Jinja's filter begins words behind fewer characters than Python's method.
    const bool begins = is_space(c) || std::string_view("-({[<").find(c) != std::string_view::npos;
    starts = (how == "title" && !letter) || (how == "words" && begins);
  }
  return result;
}

bool has_method(const Value& self, std::string_view name) {
  if (self.is(Kind::kText)) return is_one_of(name, kTextMethods) || is_one_of(name, kTextTests);
  if (self.is(Kind::kDict)) return is_one_of(name, kDictMethods);
  return self.is_sequence() && is_one_of(name, kListMethods);
}

Result<Value> call_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  TROUPE_TRY_VOID(budget.work(1));
  if (self.is(Kind::kText)) {
    TROUPE_TRY_VOID(budget.take(2 * self.text().size()));
    return call_text(budget, self.text(), name, arguments);
  }
  if (self.is(Kind::kDict)) return call_dict(budget, self, name, arguments);
  return call_list(budget, self, name, arguments);
}

}  // namespace troupe::chat

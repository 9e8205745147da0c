#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/chat_templates/operations.h"

namespace troupe::chat {

namespace {

struct Writer {
  Budget& budget;
  int64_t indent;
  bool sort_keys;
  Text out;

  void new_line(size_t level) {
    out.append("\n", true);
    out.append(std::string(level * static_cast<size_t>(indent), ' '), true);
  }

  void quoted(const Text& text) {
    out.append("\"", true);
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text.bytes[i];
      const bool trusted = text.trust[i] != 0;
      constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
      if (const size_t found = kFrom.find(c); found != std::string_view::npos) {
        out.append("\\", trusted);
        out.append(kTo.substr(found, 1), trusted);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out.append(fmt::format("\\u{:04x}", static_cast<unsigned char>(c)), trusted);
      } else {
        out.append(std::string_view(&c, 1), trusted);
      }
    }
    out.append("\"", true);
  }

  Result<void> key(const Value& key) {
    if (key.is(Kind::kText)) {
      quoted(key.text());
      return {};
    }
    out.append("\"", true);
    TROUPE_TRY_VOID(write(key, 0));
    out.append("\"", true);
    return {};
  }

  // What stands between the items of a list or dict, and around them.
  void before_item(bool first, size_t level) {
    if (!first) out.append(indent < 0 ? ", " : ",", true);
    if (indent >= 0) new_line(level + 1);
  }

  Result<void> items(const Value& value, size_t level) {
    const auto& list = value.list().items;
    out.append("[", true);
    for (size_t i = 0; i < list.size(); ++i) {
      before_item(i == 0, level);
      TROUPE_TRY_VOID(write(list[i], level + 1));
    }
    if (!list.empty() && indent >= 0) new_line(level);
    out.append("]", true);
    return {};
  }

  Result<void> entries(const Value& value, size_t level) {
    auto list = value.dict().entries;
    const auto all_text = [](const auto& entry) { return entry.first.is(Kind::kText); };
    if (sort_keys && std::all_of(list.begin(), list.end(), all_text))
      std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
        return a.first.text().bytes < b.first.text().bytes;
      });
    out.append("{", true);
    for (size_t i = 0; i < list.size(); ++i) {
      before_item(i == 0, level);
      TROUPE_TRY_VOID(key(list[i].first));
      out.append(": ", true);
      TROUPE_TRY_VOID(write(list[i].second, level + 1));
    }
    if (!list.empty() && indent >= 0) new_line(level);
    out.append("}", true);
    return {};
  }

  Result<void> write(const Value& value, size_t level) {
    const size_t text = value.is(Kind::kText) ? value.text().size() : 0;
    TROUPE_TRY_VOID(
        budget.take(16 + 4 * text + (indent < 0 ? 0 : level * static_cast<size_t>(indent))));
    switch (value.kind()) {
      case Kind::kNone:
        out.append("null", false);
        return {};
      case Kind::kBool:
        out.append(value.integer() != 0 ? "true" : "false", false);
        return {};
      case Kind::kInteger:
        out.append(fmt::format("{}", value.integer()), false);
        return {};
      case Kind::kFloat: {
        const std::string number = float_repr(value.real());
        out.append(number == "nan"    ? "NaN"
                   : number == "inf"  ? "Infinity"
                   : number == "-inf" ? "-Infinity"
                                      : number,
                   false);
        return {};
      }
      case Kind::kText:
        quoted(value.text());
        return {};
      case Kind::kList:
      case Kind::kTuple:
        return items(value, level);
      case Kind::kDict:
        return entries(value, level);
      default:
        return wrong(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
  }
};

Result<Value> convert(Budget& budget, const nlohmann::ordered_json& json, uint32_t level) {
  if (level > kValueDepthMax)
    return wrong(fmt::format("JSON nested more than {} deep", kValueDepthMax));
  TROUPE_TRY_VOID(budget.take(64));
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return wrong("JSON with an integer beyond 64 bits");
  if (json.is_number_integer()) return Value::integer(json.get<int64_t>());
  if (json.is_number_float()) return Value::real(json.get<double>());
  if (json.is_string())
    return make_text(budget, Text::of(json.get_ref<const std::string&>(), false));
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) {
      TROUPE_TRY(Value value, convert(budget, item, level + 1));
      items.push_back(std::move(value));
    }
    return make_list(budget, std::move(items));
  }
  Dict dict;
  for (const auto& [name, item] : json.items()) {
    TROUPE_TRY(Value value, convert(budget, item, level + 1));
    TROUPE_TRY_VOID(put(budget, dict, Value::text(name, false), std::move(value)));
  }
  return make_dict(budget, std::move(dict));
}

}  // namespace

Result<Value> to_json(Budget& budget, const Value& value, int64_t indent, bool sort_keys) {
  if (indent > 64) return wrong(fmt::format("tojson with an indent of {}, limit 64", indent));
  Writer writer{budget, indent, sort_keys, {}};
  TROUPE_TRY_VOID(writer.write(value, 0));
  return make_text(budget, std::move(writer.out));
}

Result<Value> from_json(Budget& budget, std::string_view json) {
  TROUPE_TRY_VOID(budget.take(16 * json.size()));
  // The library checks that a new key is not there yet by going through all: an object of very
  // many keys would take quadratic time.
  constexpr size_t kPunctuationMax = 20000;
  if (std::count(json.begin(), json.end(), ':') > static_cast<std::ptrdiff_t>(kPunctuationMax))
    return wrong(fmt::format("JSON with more than {} colons", kPunctuationMax));
  const auto parsed = nlohmann::ordered_json::parse(json, nullptr, false);
  if (parsed.is_discarded()) return wrong("text that is not JSON");
  return convert(budget, parsed, 0);
}

}  // namespace troupe::chat

#include "apps/node/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace troupe {
namespace {

constexpr size_t kMistakesShown = 10;

const char* kind_of(const YAML::Node& node) {
  if (node.IsMap()) return "a mapping";
  if (node.IsSequence()) return "a list";
  if (node.IsScalar()) return "a single value";
  return "nothing";
}

// Quoted, and cut off where it would fill the screen.
std::string shown(std::string_view text) {
  constexpr size_t kShownMax = 60;
  if (text.size() <= kShownMax) return fmt::format("\"{}\"", text);
  return fmt::format("\"{}…\"", text.substr(0, kShownMax));
}

template <class Number>
bool parse_number(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

// "512 MiB" -> 512 and "MiB".
bool split_unit(std::string_view text, uint64_t& number, std::string_view& unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return true;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), fits);
}

}  // namespace

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  std::string nearest;
  size_t fewest = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t edits = edit_distance(name, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

void ConfigMistakes::add(const YAML::Node& where, const std::string& key, const std::string& what) {
  if (++count_ > kMistakesShown) return;
  const int line = where.IsDefined() ? where.Mark().line : -1;
  const std::string subject = key.empty() ? "" : key + ": ";
  if (std::find(flags_.begin(), flags_.end(), key) != flags_.end()) {
    lines_.push_back(fmt::format("command line: {}{}", subject, what));
    return;
  }
  lines_.push_back(line < 0 ? fmt::format("{}: {}{}", file_, subject, what)
                            : fmt::format("{}:{}: {}{}", file_, line + 1, subject, what));
}

Error ConfigMistakes::error() const {
  std::string message = fmt::format("{}", fmt::join(lines_, "\n"));
  if (count_ > kMistakesShown) message += fmt::format("\nand {} more", count_ - kMistakesShown);
  return Error{ErrorCode::kInvalidArgument, message};
}

ConfigSection::ConfigSection(ConfigMistakes& mistakes, std::string path, const YAML::Node& node)
    : mistakes_(mistakes), path_(std::move(path)), node_(node) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!node.IsMap()) {
    mistakes_.add(node, path_, fmt::format("is {}, must be a mapping of keys", kind_of(node)));
    return;
  }
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      mistakes_.add(entry.first, path_, fmt::format("a key is {}", kind_of(entry.first)));
      continue;
    }
    const std::string& key = entry.first.Scalar();
    const auto same = [&](const auto& other) { return other.first == key; };
    if (std::any_of(entries_.begin(), entries_.end(), same))
      mistakes_.add(entry.first, full(key), "is given twice");
    entries_.emplace_back(key, entry.second);
    keys_.emplace_back(key, entry.first);
  }
}

const YAML::Node* ConfigSection::find(const char* key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  for (const auto& [name, value] : entries_)
    if (name == key && value.IsDefined() && !value.IsNull()) return &value;
  return nullptr;
}

bool ConfigSection::has(const char* key) {
  return find(key) != nullptr;
}

YAML::Node ConfigSection::child(const char* key) {
  const YAML::Node* value = find(key);
  return value ? *value : YAML::Node(YAML::NodeType::Undefined);
}

void ConfigSection::wrong(const char* key, const std::string& what) {
  const YAML::Node* value = find(key);
  mistakes_.add(value ? *value : node_, full(key), what);
}

bool ConfigSection::scalar(const char* key, std::string& into) {
  const YAML::Node* value = find(key);
  if (!value) return false;
  if (!value->IsScalar()) {
    wrong(key, fmt::format("is {}, must be a single value", kind_of(*value)));
    return false;
  }
  into = value->Scalar();
  return true;
}

void ConfigSection::text(const char* key, std::string& into) {
  std::string seen;
  if (!scalar(key, seen)) return;
  constexpr size_t kTextMax = 4096;
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
  if (seen.size() > kTextMax) {
    wrong(key, fmt::format("has {} bytes, at most {} are allowed", seen.size(), kTextMax));
  } else if (std::any_of(seen.begin(), seen.end(), control)) {
    wrong(key, "has control characters");
  } else {
    into = seen;
  }
}

void ConfigSection::name(const char* key, std::string& into) {
  std::string seen;
  if (!scalar(key, seen)) return;
  if (is_name(seen)) {
    into = seen;
  } else {
    wrong(key, shown(seen) + " is no name: 1 to 64 letters, digits and . _ -");
  }
}

void ConfigSection::path(const char* key, std::string& into) {
  std::string seen;
  text(key, seen);
  if (seen.empty()) return;
  if (seen.front() == '/') {
    into = seen;
  } else {
    wrong(key, shown(seen) + " must be an absolute path");
  }
}

void ConfigSection::flag(const char* key, bool& into) {
  choice(key, into, {{"true", true}, {"false", false}});
}

void ConfigSection::number(const char* key, uint32_t& into, uint32_t least, uint32_t most) {
  std::string seen;
  if (!scalar(key, seen)) return;
  uint32_t value = 0;
  if (parse_number(seen, value) && value >= least && value <= most) {
    into = value;
  } else {
    wrong(key, fmt::format("{} must be a whole number from {} to {}", shown(seen), least, most));
  }
}

void ConfigSection::bytes(const char* key, uint64_t& into) {
  std::string seen;
  if (!scalar(key, seen)) return;
  uint64_t number = 0;
  std::string_view unit;
  if (split_unit(seen, number, unit)) {
    constexpr std::pair<std::string_view, int> kUnits[] = {
        {"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    for (const auto& [name, shift] : kUnits) {
      if (unit == name && number <= (UINT64_MAX >> shift)) {
        into = number << shift;
        return;
      }
    }
  }
  wrong(key, shown(seen) + " must be a number of bytes, for example 1048576, 512MiB or 8GiB");
}

void ConfigSection::duration(const char* key, Duration& into, Duration least, Duration most) {
  std::string seen;
  if (!scalar(key, seen)) return;
  uint64_t number = 0;
  std::string_view unit;
  if (split_unit(seen, number, unit) && number <= 1'000'000'000) {
    const Duration one = unit == "ms" ? Duration{1ms} : unit == "s" ? Duration{1s} : Duration{0};
    const Duration value = one * static_cast<int64_t>(number);
    if (one > Duration{0} && value >= least && value <= most) {
      into = value;
      return;
    }
  }
  const auto ms = [](Duration d) { return static_cast<int64_t>(to_milliseconds(d)); };
  wrong(key, fmt::format("{} must be a duration from {} ms to {} ms, for example 250ms or 3s",
                         shown(seen), ms(least), ms(most)));
}

void ConfigSection::numbers(const char* key, std::vector<uint32_t>& into, uint32_t most,
                            size_t count_max) {
  const YAML::Node* value = find(key);
  if (!value) return;
  std::vector<std::string> texts;
  if (value->IsSequence()) {
    for (const auto& item : *value) texts.push_back(item.IsScalar() ? item.Scalar() : "?");
  } else if (value->IsScalar()) {  // a flag: "0,10,20"
    std::string_view rest = value->Scalar();
    while (true) {
      const size_t comma = rest.find(',');
      texts.emplace_back(rest.substr(0, comma));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    return wrong(key, fmt::format("is {}, must be a list of numbers", kind_of(*value)));
  }
  if (texts.size() > count_max)
    return wrong(key,
                 fmt::format("has {} entries, at most {} are allowed", texts.size(), count_max));
  std::vector<uint32_t> parsed;
  for (const std::string& text : texts) {
    uint32_t number = 0;
    if (!parse_number(text, number) || number > most)
      return wrong(key, fmt::format("{} must be a whole number from 0 to {}", shown(text), most));
    parsed.push_back(number);
  }
  into = parsed;
}

void ConfigSection::wrong_choice(const char* key, const std::string& seen,
                                 const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(seen, known);
  wrong(key, fmt::format("{} must be one of {}{}", shown(seen), fmt::join(known, ", "),
                         nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

void ConfigSection::refuse_unknown_keys() const {
  for (const auto& [key, place] : keys_) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    const std::string nearest = nearest_name(key, asked_);
    const std::string advice = nearest.empty()
                                   ? fmt::format("known here: {}", fmt::join(asked_, ", "))
                                   : fmt::format("did you mean {}?", full(nearest));
    mistakes_.add(place, full(key.size() > 64 ? key.substr(0, 64) : key), "unknown key; " + advice);
  }
}

}  // namespace troupe

// Reads one YAML mapping key by key, and remembers every mistake with file and line instead of
// stopping at the first. What is in the mapping but was never asked for is an unknown key; the
// nearest known name is suggested.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace troupe {

// The mistakes of one file; the first ten are kept.
class ConfigMistakes {
 public:
  // `flags`: the keys that the command line set.
  ConfigMistakes(std::string file, std::vector<std::string> flags)
      : file_(std::move(file)), flags_(std::move(flags)) {}
  // At the node's line, if it has one.
  void add(const YAML::Node& where, const std::string& key, const std::string& what);
  bool none() const { return count_ == 0; }
  Error error() const;

 private:
  std::string file_;
  std::vector<std::string> flags_, lines_;
  size_t count_ = 0;
};

class ConfigSection {
 public:
  // `path` is the key that led here ("node"), empty for the root. A missing node is an empty
  // mapping.
  ConfigSection(ConfigMistakes& mistakes, std::string path, const YAML::Node& node);

  // Each leaves `into` alone if the key is missing, null or wrong.
  void text(const char* key, std::string& into);
  void name(const char* key, std::string& into);  // [A-Za-z0-9._-], 1 to 64 characters
  void path(const char* key, std::string& into);  // absolute
  void flag(const char* key, bool& into);
  void number(const char* key, uint32_t& into, uint32_t least, uint32_t most);
  void bytes(const char* key, uint64_t& into);  // 1048576, 512MiB, 8 GiB
  void duration(const char* key, Duration& into, Duration least, Duration most);  // 250ms, 3s
  void numbers(const char* key, std::vector<uint32_t>& into, uint32_t most, size_t count_max);
  template <class Choice>
  void choice(const char* key, Choice& into,
              std::initializer_list<std::pair<const char*, Choice>> choices);

  // A nested mapping or list; undefined if missing.
  YAML::Node child(const char* key);
  bool has(const char* key);
  void wrong(const char* key, const std::string& what);  // at the key's place, or the section's
  void refuse_unknown_keys() const;

 private:
  const YAML::Node* find(const char* key);
  bool scalar(const char* key, std::string& into);
  void wrong_choice(const char* key, const std::string& seen,
                    const std::vector<std::string>& known);
  std::string full(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  ConfigMistakes& mistakes_;
  std::string path_;
  YAML::Node node_;
  std::vector<std::pair<std::string, YAML::Node>> entries_, keys_;
  std::vector<std::string> asked_;
};

// The known name that takes the fewest edits to reach, if that is few enough to be a slip of the
// finger.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

template <class Choice>
void ConfigSection::choice(const char* key, Choice& into,
                           std::initializer_list<std::pair<const char*, Choice>> choices) {
  std::string seen;
  if (!scalar(key, seen)) return;
  std::vector<std::string> known;
  for (const auto& [text, value] : choices) {
    if (seen == text) {
      into = value;
      return;
    }
    known.emplace_back(text);
  }
  wrong_choice(key, seen, known);
}

}  // namespace troupe

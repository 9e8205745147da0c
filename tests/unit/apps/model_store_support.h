// What the tests of the model store share: a small GGUF file, and an observer that remembers.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "apps/model_store/model_store.h"
#include "tests/unit/apps/scratch_folder.h"

namespace troupe::test {

struct Told : PullObserver {
  void step(const std::string& text) override { steps.push_back(text); }
  void progress(uint64_t done, uint64_t total) override { BOOST_TEST(done <= total); }
  bool said(const std::string& words) const {
    return std::any_of(steps.begin(), steps.end(), [&](const std::string& step) {
      return step.find(words) != std::string::npos;
    });
  }
  std::vector<std::string> steps;
};

// The smallest GGUF file: version 3, no tensors, one key, which every reader takes.
inline std::string small_gguf() {
  std::string bytes = "GGUF";
  const auto number = [&](uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes += static_cast<char>((value >> (8 * i)) & 255);
  };
  number(3, 4);
  number(0, 8);
  number(1, 8);
  const std::string key = "general.architecture", value = "llama";
  number(key.size(), 8);
  bytes += key;
  number(8, 4);
  number(value.size(), 8);
  bytes += value;
  bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
  return bytes;
}

inline size_t work_folders(const std::string& root) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (entry.path().filename().string().starts_with(".pull-")) ++count;
  return count;
}

}  // namespace troupe::test

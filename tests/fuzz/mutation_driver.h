// A plain mutation fuzzer around the entry point that libFuzzer calls too: seeded, so that CTest
// runs the same inputs every time, and without any tool. `PROGRAM ITERATIONS [SEED]`; what fails
// says the iteration, and `PROGRAM 1 SEED+ITERATION` repeats it alone. For a long hunt compile the
// same file with `clang++ -fsanitize=fuzzer,address -DTROUPE_LIBFUZZER`.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace troupe::fuzz {

using Input = std::vector<uint8_t>;

// Ends the program, as libFuzzer expects of a failure.
inline void require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

inline volatile uint64_t failing_seed = 0;

inline void say_seed(int) {
  std::fprintf(stderr, "failed with seed %llu\n", static_cast<unsigned long long>(failing_seed));
}

// Half of the changes gather at the ends, where formats keep what decides; the middle is mostly
// content.
inline size_t choose_place(size_t size, std::mt19937_64& random) {
  constexpr size_t kEnd = 1024;
  if (size <= 2 * kEnd || random() % 2 == 0) return random() % size;
  const size_t place = random() % kEnd;
  return random() % 2 == 0 ? place : size - 1 - place;
}

// One small change; numbers that are often wrong are preferred to random ones.
inline void mutate_once(Input& input, std::mt19937_64& random) {
  constexpr std::array<uint64_t, 12> kNumbers = {
      0, 1, 7, 0x7F, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF, 1ULL << 40, 1ULL << 63, ~0ULL};
  if (input.empty()) {
    input.push_back(static_cast<uint8_t>(random()));
    return;
  }
  const size_t place = choose_place(input.size(), random);
  const auto offset = static_cast<std::ptrdiff_t>(place);
  const size_t length = std::min<size_t>(1 + random() % 16, input.size() - place);
  switch (random() % 8) {
    case 0:
      input[place] = static_cast<uint8_t>(input[place] ^ (1U << random() % 8));
      break;
    case 1:
      input[place] = static_cast<uint8_t>(random());
      break;
    case 2:
    case 3:
    case 4: {
      const uint64_t number = kNumbers[random() % kNumbers.size()];
      std::memcpy(input.data() + place, &number,
                  std::min<size_t>(random() % 2 == 0 ? 4 : 8, input.size() - place));
      break;
    }
    case 6:
      input.erase(input.begin() + offset,
                  input.begin() + offset + static_cast<std::ptrdiff_t>(length));
      break;
    case 7: {
      const Input copy(input.begin() + offset,
                       input.begin() + offset + static_cast<std::ptrdiff_t>(length));
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(random() % input.size()),
                   copy.begin(), copy.end());
      break;
    }
    default:
      if (random() % 4 == 0) input.resize(place);
      break;
  }
}

// `starts` are good inputs. Changes gather where `focus` says the interesting bytes end (0:
// everywhere).
inline int run(int argc, char** argv, const std::vector<Input>& starts, size_t focus) {
  const uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::signal(SIGABRT, say_seed);
  std::printf("%llu iterations from seed %llu\n", static_cast<unsigned long long>(iterations),
              static_cast<unsigned long long>(seed));
  for (const Input& start : starts) LLVMFuzzerTestOneInput(start.data(), start.size());
  for (uint64_t i = 0; i < iterations; ++i) {
    failing_seed = seed + i;
    std::mt19937_64 random(seed + i);
    Input input = starts[random() % starts.size()];
    Input tail;
    if (focus != 0 && input.size() > focus) {
      tail.assign(input.begin() + static_cast<std::ptrdiff_t>(focus), input.end());
      input.resize(focus);
    }
    const uint64_t changes = 1 + random() % 3;
    for (uint64_t change = 0; change < changes; ++change) mutate_once(input, random);
    if (random() % 8 != 0) input.insert(input.end(), tail.begin(), tail.end());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}

}  // namespace troupe::fuzz

// Checks for what cannot happen in a correct program: on in every build, they end the process, and
// the supervisor starts a new one. Input from files, peers or users never reaches a check: that is
// Result's job.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace troupe {

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const char* explanation) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, explanation);
  std::abort();
}

}  // namespace troupe

// TROUPE_CHECK(condition, "the promise that was broken")
#define TROUPE_CHECK(condition, explanation) \
  (static_cast<bool>(condition)              \
       ? static_cast<void>(0)                \
       : ::troupe::check_failed(__FILE__, __LINE__, #condition, explanation))

// What cannot run here is skipped loudly, never passed: CTest reads exit code 77 as "skipped". For
// a whole executable whose tests all need something this machine lacks.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace troupe::test {

[[noreturn]] inline void skip_all(const std::string& why) {
  std::fprintf(stderr, "SKIPPED: %s\n", why.c_str());
  std::fflush(stderr);
  std::_Exit(77);
}

}  // namespace troupe::test

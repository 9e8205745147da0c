// Runs another program to its end, with arguments passed as they are (no shell) and its words kept
// in a file.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace troupe {

struct ChildOptions {
  std::vector<std::string> arguments;                            // [0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string log;             // standard output and error are appended to this file
  std::function<void()> tick;  // called about ten times a second meanwhile; may be empty
};

// The exit code; 128 + n for a child that signal n ended. Errors: kNotFound (no such program), kIo.
Result<int> run_child(const ChildOptions& options);

// The last lines of a text file, for error messages; empty if there is none.
std::string tail_of_file(const std::string& path, size_t lines);

}  // namespace troupe

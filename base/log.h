// Logging: a thin face over spdlog, so that its headers are compiled once. Whoever first knows what
// an error is logs it; nobody above logs it again. Lines go to standard error or a file; secrets
// never go anywhere.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace troupe {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::string file;  // empty: standard error
  std::string name;  // who writes, for example "node-2" or "node-2/stage-1"; printed in every line
};

// Call once, before other threads start. Until then, warnings and errors go to standard error.
Result<void> start_logging(const LogOptions& options);
Result<LogLevel> parse_log_level(std::string_view text);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view component, std::string_view text);
void flush_logging();

template <class... Args>
void log(LogLevel level, std::string_view component, fmt::format_string<Args...> format,
         Args&&... args) {
  if (log_enabled(level))
    log_line(level, component, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kDebug, component, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, component, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, component, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kError, component, format, std::forward<Args>(args)...);
}

}  // namespace troupe

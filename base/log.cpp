#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace troupe {
namespace {

// The one piece of process-wide state in Troupe: where lines go. spdlog itself is process-wide,
// too.
std::shared_ptr<spdlog::logger>& sink_logger() {
  static std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>(
        "troupe", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::warn);
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return logger;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

Result<void> start_logging(const LogOptions& options) {
  spdlog::sink_ptr sink;
  try {
    if (options.file.empty())
      sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    else
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
  } catch (const spdlog::spdlog_ex& failure) {
    return Error{ErrorCode::kIo, fmt::format("log file {}: {}", options.file, failure.what())};
  }
  auto logger = std::make_shared<spdlog::logger>(options.name, std::move(sink));
  logger->set_level(to_spdlog(options.level));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %n %v");
  logger->flush_on(spdlog::level::info);
  sink_logger() = std::move(logger);
  return {};
}

Result<LogLevel> parse_log_level(std::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  if (text == "off") return LogLevel::kOff;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("log level '{}', allowed: debug info warning error off", text)};
}

bool log_enabled(LogLevel level) {
  return sink_logger()->should_log(to_spdlog(level));
}

void log_line(LogLevel level, std::string_view component, std::string_view text) {
  sink_logger()->log(to_spdlog(level), "{}: {}", component, text);
}

void flush_logging() {
  sink_logger()->flush();
}

}  // namespace troupe

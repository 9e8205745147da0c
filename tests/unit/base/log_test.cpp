#include "base/log.h"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(logging)

BOOST_AUTO_TEST_CASE(knows_its_levels_by_name) {
  BOOST_TEST((parse_log_level("debug").value() == LogLevel::kDebug));
  BOOST_TEST((parse_log_level("off").value() == LogLevel::kOff));
  for (const char* bad : {"", "INFO", "verbose"}) {
    const Result<LogLevel> level = parse_log_level(bad);
    BOOST_REQUIRE(!level.ok());
    BOOST_TEST(level.error().message.find("debug info warning error off") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(writes_what_is_at_or_above_its_level_with_its_name) {
  std::string pattern = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(pattern.data());
  BOOST_REQUIRE(
      start_logging(
          {.level = LogLevel::kWarning, .file = (folder / "log").string(), .name = "node-7"})
          .ok());
  log_info("tests", "not {}", "shown");
  log_warning("tests", "shown {}", 42);
  flush_logging();
  BOOST_TEST(!log_enabled(LogLevel::kInfo));
  BOOST_TEST(log_enabled(LogLevel::kError));
  std::stringstream text;
  text << std::ifstream(folder / "log").rdbuf();
  BOOST_TEST(text.str().find("tests: shown 42") != std::string::npos, text.str());
  BOOST_TEST(text.str().find("node-7") != std::string::npos, text.str());
  BOOST_TEST(text.str().find("not shown") == std::string::npos, text.str());
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(says_that_a_file_cannot_be_written) {
  const Result<void> started =
      start_logging({.level = LogLevel::kInfo, .file = "/proc/no/such/log", .name = ""});
  BOOST_REQUIRE(!started.ok());
  BOOST_TEST(started.error().message.find("/proc/no/such/log") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

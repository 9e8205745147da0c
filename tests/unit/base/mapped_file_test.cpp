#include "base/mapped_file.h"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

using namespace troupe;

namespace {

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return (path / name).string();
  }
  std::filesystem::path path;
};

ErrorCode code_of(const std::string& name) {
  const Result<MappedFile> file = MappedFile::open(name);
  BOOST_REQUIRE(!file.ok());
  BOOST_TEST(file.error().message.find(name) != std::string::npos);
  return file.error().code;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(mapped_file, Folder)

BOOST_AUTO_TEST_CASE(shows_the_bytes_of_the_file) {
  const std::string name = write("a", "some bytes");
  const MappedFile file = MappedFile::open(name).value();
  BOOST_TEST(as_text(file.bytes()) == "some bytes");
  BOOST_TEST(file.path() == name);
}

BOOST_AUTO_TEST_CASE(moves_without_losing_or_doubling_the_mapping) {
  MappedFile first = MappedFile::open(write("a", "first")).value();
  MappedFile second = MappedFile::open(write("b", "second")).value();
  second = std::move(first);
  BOOST_TEST(as_text(second.bytes()) == "first");
  const MappedFile third(std::move(second));
  BOOST_TEST(as_text(third.bytes()) == "first");
}

BOOST_AUTO_TEST_CASE(says_what_is_wrong_with_a_path) {
  BOOST_TEST((code_of((path / "missing").string()) == ErrorCode::kNotFound));
  BOOST_TEST((code_of(write("empty", "")) == ErrorCode::kInvalidFile));
  BOOST_TEST((code_of(path.string()) == ErrorCode::kInvalidFile));
}

BOOST_AUTO_TEST_CASE(takes_advice_for_any_range) {
  const std::string text(100'000, 'x');
  const MappedFile file = MappedFile::open(write("a", text)).value();
  const size_t huge = std::numeric_limits<size_t>::max();
  file.will_need(0, huge);
  file.will_need(huge, huge);
  file.dont_need(5000, 20'000);
  file.dont_need(99'999, 1);
  BOOST_TEST((as_text(file.bytes()) == text));
}

BOOST_AUTO_TEST_SUITE_END()

// Pulls go through the real pip with a wheel made here, so no network is needed.
#include <boost/test/unit_test.hpp>

#include "apps/model_store/child.h"
#include "apps/model_store/model_store.h"
#include "apps/model_store/sha256.h"
#include "tests/support/skip.h"
#include "tests/unit/apps/model_store_support.h"

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

int python(const std::string& script, const std::vector<std::string>& arguments,
           const std::string& log) {
  ChildOptions options{
      .arguments = {"python3", "-c", script}, .environment = {}, .log = log, .tick = {}};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  const Result<int> code = run_child(options);
  return code.ok() ? code.value() : -1;
}

struct NeedsPip {
  NeedsPip() {
    if (python("import pip", {}, ScratchFolder().file("log")) != 0)
      skip_all("python3 or pip is not here");
  }
};

// A wheel named like a package, with `files` GGUF files of the same content in it.
std::string make_wheel(const ScratchFolder& folder, const std::string& gguf, int files) {
  folder.write("model.gguf", gguf);
  const std::string wheel = folder.file("troupe_tests-1.0-py3-none-any.whl");
  const char* script =
      "import sys, zipfile\n"
      "info = 'troupe_tests-1.0.dist-info/'\n"
      "with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n"
      "    for i in range(int(sys.argv[3])):\n"
      "        wheel.write(sys.argv[2], f'troupe_tests/model-{i}.gguf')\n"
      "    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: "
      "troupe-tests\\nVersion: 1.0\\n')\n"
      "    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: "
      "true\\n'\n"
      "                   'Tag: py3-none-any\\n')\n"
      "    wheel.writestr(info + 'RECORD', '')\n";
  BOOST_REQUIRE(python(script, {wheel, folder.file("model.gguf"), std::to_string(files)},
                       folder.file("log")) == 0);
  return wheel;
}

ModelSource source_of(const ScratchFolder& folder, const std::string& wheel) {
  const std::string sum = sha256_of_file(folder.file("model.gguf")).value();
  return {.name = "tiny",
          .requirement = wheel,
          .sha256 = sum,
          .bytes = fs::file_size(folder.file("model.gguf")),
          .wheel_bytes = fs::file_size(wheel),
          .about = "a test"};
}

}  // namespace

BOOST_GLOBAL_FIXTURE(NeedsPip);

BOOST_AUTO_TEST_SUITE(model_pull)

BOOST_AUTO_TEST_CASE(pulls_a_model_out_of_a_wheel_once) {
  const ScratchFolder folder;
  const ModelSource source = source_of(folder, make_wheel(folder, small_gguf(), 1));
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  Told told;
  const Result<StoredModel> model = store.pull(source, told);
  BOOST_REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  BOOST_TEST(sha256_of_file(model.value().path).value() == source.sha256);
  BOOST_TEST(model.value().path == store.root() + "/sha256/" + source.sha256 + ".gguf");
  BOOST_TEST(told.said("fetching"));
  BOOST_TEST(work_folders(store.root()) == 0U);
  Told again;
  BOOST_TEST(store.pull(source, again).ok());
  BOOST_TEST(again.steps.empty());
}

BOOST_AUTO_TEST_CASE(throws_away_what_has_another_checksum) {
  const ScratchFolder folder;
  ModelSource source = source_of(folder, make_wheel(folder, small_gguf(), 1));
  const std::string seen = source.sha256;
  source.sha256 = std::string(64, '0');
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  Told told;
  const Result<StoredModel> model = store.pull(source, told);
  BOOST_REQUIRE(!model.ok());
  BOOST_TEST((model.error().code == ErrorCode::kInvalidFile));
  BOOST_TEST(model.error().message.find(seen) != std::string::npos);
  BOOST_TEST(model.error().message.find(source.sha256) != std::string::npos);
  BOOST_TEST(!store.find("tiny").ok());
  BOOST_TEST(work_folders(store.root()) == 0U);
  BOOST_TEST(fs::is_empty(store.root() + "/sha256"));
}

BOOST_AUTO_TEST_CASE(refuses_a_wheel_with_no_or_two_models_or_another_size) {
  for (const int files : {0, 2}) {
    const ScratchFolder folder;
    const ModelSource source = source_of(folder, make_wheel(folder, small_gguf(), files));
    Told told;
    const auto model = ModelStore::open(folder.file("cache")).value().pull(source, told);
    BOOST_REQUIRE(!model.ok());
    BOOST_TEST((model.error().code == ErrorCode::kInvalidFile));
    BOOST_TEST(model.error().message.find("1 expected") != std::string::npos,
               model.error().message);
  }
  const ScratchFolder folder;
  ModelSource source = source_of(folder, make_wheel(folder, small_gguf(), 1));
  source.bytes += 1;
  Told told;
  const auto model = ModelStore::open(folder.file("cache")).value().pull(source, told);
  BOOST_REQUIRE(!model.ok());
  BOOST_TEST(model.error().message.find("expected") != std::string::npos, model.error().message);
}

BOOST_AUTO_TEST_CASE(says_what_pip_said_when_it_cannot_fetch) {
  const ScratchFolder folder;
  const ModelSource source{.name = "tiny",
                           .requirement = folder.file("absent-1.0-py3-none-any.whl"),
                           .sha256 = std::string(64, '0'),
                           .bytes = 1,
                           .wheel_bytes = 1,
                           .about = ""};
  Told told;
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  const auto model = store.pull(source, told);
  BOOST_REQUIRE(!model.ok());
  BOOST_TEST((model.error().code == ErrorCode::kUnavailable));
  BOOST_TEST(model.error().message.find("absent-1.0") != std::string::npos, model.error().message);
  BOOST_TEST(work_folders(store.root()) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

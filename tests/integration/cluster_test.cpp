// What a user meets: mistakes on the command line, hostile neighbours, vanishing clients, an
// orderly end. Real processes, the tiny model.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/cluster.h"
#include "tests/support/tiny_model.h"

namespace troupe::test {
namespace {
namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-files-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
    model = (path / "tiny.gguf").string();
    BOOST_REQUIRE(write_tiny_model({.layers = 6, .context = 256}, model).ok());
  }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
  fs::path path;
  std::string model;
};

GenerateRequest request(const std::string& id, uint32_t tokens = 32) {
  GenerateRequest made;
  made.id = id;
  made.prompt = "the light goes round";
  made.max_tokens = tokens;
  made.ignore_end = true;
  return made;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Connects, sends the bytes, and closes. True if the port took the connection.
bool poke(const std::string& address, const std::string& bytes) {
  const size_t colon = address.rfind(':');
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = ::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  if (connected) (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::close(socket);
  return connected;
}

std::string config_text(const Folder& folder, const std::string& port, const std::string& rpc) {
  return fmt::format(
      "cluster: {{id: \"00000000000000aa\"}}\n"
      "node: {{id: node-1, role: head, listen: \"127.0.0.1:{}\", state: {}}}\n"
      "rpc: {{listen: \"127.0.0.1:{}\"}}\n"
      "deployment: {{model: {}, stages: 2, nodes_expected: 1, context: 256, streams: 4}}\n",
      port, folder.path.string(), rpc, folder.model);
}

Finished trouped(const std::vector<std::string>& arguments) {
  std::vector<std::string> line{programs_folder() + "/trouped"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  auto finished = run_program(line);
  BOOST_REQUIRE(finished.ok());
  return std::move(finished).value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(integration_cluster)

BOOST_FIXTURE_TEST_CASE(a_wrong_start_says_what_is_wrong_and_ends, Folder) {
  const std::string good = config_text(*this, "0", "0");
  const auto with = [&](std::string from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    BOOST_REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const std::string cut = (path / "cut.gguf").string();
  fs::copy_file(model, cut);
  fs::resize_file(cut, fs::file_size(cut) / 2);
  const std::vector<std::tuple<std::string, std::string, int>> cases{
      {with("role: head", "role: boss"), "boss", 2},
      {with("streams: 4", "streems: 4"), "streams", 2},
      {with("context: 256", "context: -1"), "context", 2},
      {with(model, "/no/such/model.gguf"), "/no/such/model.gguf", 1},
      {with(model, cut), "cut.gguf", 1},
      {with("stages: 2", "stages: 2, layer_split: [0, 9]"), "layer", 1},
      {with("127.0.0.1:0", "0.0.0.0:0"), "TLS", 2},
      {"[not yaml", "yaml", 2},
  };
  for (const auto& [text, word, code] : cases) {
    const Finished finished = trouped({"--config", write("bad.yaml", text)});
    BOOST_TEST(finished.code == code, finished.output);
    BOOST_TEST(finished.output.find(word) != std::string::npos,
               word + " is not in: " + finished.output);
  }
  BOOST_TEST(trouped({}).code == 2);
  BOOST_TEST(trouped({"--config", "/no/such/file"}).code == 2);
}

BOOST_FIXTURE_TEST_CASE(a_port_in_use_is_named, Folder) {
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BOOST_REQUIRE(::bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  BOOST_REQUIRE(::listen(taken, 1) == 0);
  socklen_t length = sizeof address;
  ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  for (const std::string& text : {config_text(*this, port, "0"), config_text(*this, "0", port)}) {
    const Finished finished = trouped({"--config", write("port.yaml", text)});
    BOOST_TEST(finished.code == 1);
    BOOST_TEST(finished.output.find(port) != std::string::npos, finished.output);
  }
  // Stage processes that were just being started end with their daemon.
  const Instant end = steady_now() + 5s;
  while (!processes_of(path.string()).empty() && steady_now() < end) ::usleep(10'000);
  BOOST_TEST(processes_of(path.string()).empty());
  ::close(taken);
}

BOOST_FIXTURE_TEST_CASE(inspect_says_whether_a_model_runs_here, Folder) {
  const auto inspect = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {programs_folder() + "/troupe", "inspect"});
    auto finished = run_program(arguments);
    BOOST_REQUIRE(finished.ok());
    return std::move(finished).value();
  };
  const Finished people = inspect({model, "--stages", "2", "--metadata", "--tensors"});
  BOOST_TEST(people.code == 0);
  for (const char* word :
       {"runs here", "6 layers", "0-2", "3-5", "general.architecture", "token_embd"})
    BOOST_TEST(people.output.find(word) != std::string::npos,
               std::string(word) + " is not in: " + people.output);

  const Finished json = inspect({model, "--stages", "3", "--context", "64", "--json"});
  BOOST_TEST(json.code == 0);
  const auto document = nlohmann::json::parse(json.output);
  BOOST_TEST(document["runs"] == true);
  BOOST_TEST(document["stages"].size() == 3U);
  BOOST_TEST(document["bytes"] == fs::file_size(model));
  // Keys and values of every position in half precision, of all layers together.
  uint64_t kv = 0;
  for (const auto& stage : document["stages"]) kv += stage["kv_bytes"].get<uint64_t>();
  BOOST_TEST(kv == document["model"]["kv_bytes_per_token"].get<uint64_t>() * 64 * 32);

  BOOST_TEST(inspect({model, "--stages", "7"}).code == 2);  // of 6 layers
  const std::string cut = (path / "cut.gguf").string();
  fs::copy_file(model, cut);
  fs::resize_file(cut, fs::file_size(cut) / 2);
  const Finished broken = inspect({cut});
  BOOST_TEST(broken.code == 1);
  BOOST_TEST(broken.output.find("cut.gguf") != std::string::npos, broken.output);
  // Another architecture: the file is shown all the same.
  std::string bytes = read_file(model);
  const std::string name = "llama";
  const size_t at = bytes.find(name, bytes.find("general.architecture"));
  const Finished strange =
      inspect({write("strange.gguf", bytes.replace(at, name.size(), "lama2")), "--tensors"});
  BOOST_TEST(strange.code == 0);
  for (const char* word : {"does not run here", "lama2", "token_embd"})
    BOOST_TEST(strange.output.find(word) != std::string::npos,
               std::string(word) + " is not in: " + strange.output);
}

BOOST_FIXTURE_TEST_CASE(strangers_on_every_port_disturb_nobody, Folder) {
  auto cluster = Cluster::start({.model = model, .nodes = 2, .stages = 2});
  BOOST_REQUIRE_MESSAGE(cluster.ok(), (cluster.ok() ? "" : cluster.error().message));
  auto client = cluster.value()->client();
  BOOST_REQUIRE(client.ok());
  const auto expected = client.value()->generate(request("calm", 64));
  BOOST_REQUIRE(expected.ok());
  const std::string rpc = cluster.value()->rpc();
  const std::string peers =
      fmt::format("127.0.0.1:{}", std::stoi(rpc.substr(rpc.rfind(':') + 1)) - 1);
  std::mt19937_64 random(99);
  std::thread stranger([&] {
    for (int round = 0; round < 60; ++round) {
      std::string bytes(random() % 4096, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      if (round % 3 == 0) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
      if (round % 3 == 1) bytes = std::string(8, '\xff') + bytes;
      poke(rpc, bytes);
      poke(peers, bytes);
    }
  });
  for (int round = 0; round < 5; ++round) {
    const auto answer = client.value()->generate(request(fmt::format("poked-{}", round), 64));
    BOOST_REQUIRE_MESSAGE(answer.ok(), (answer.ok() ? "" : to_string(answer.error())));
    BOOST_TEST(answer.value().text == expected.value().text);
  }
  stranger.join();
  const auto status = client.value()->status();
  BOOST_REQUIRE(status.ok());
  BOOST_TEST(status.value().deployments[0].view == 1U);
  const auto down = cluster.value()->down();
  BOOST_TEST(down.ok(), (down.ok() ? "" : down.error().message));
}

BOOST_FIXTURE_TEST_CASE(absurd_requests_are_refused_in_words, Folder) {
  auto cluster = Cluster::start(
      {.model = model, .nodes = 1, .stages = 2, .up_arguments = {"--context", "256"}});
  BOOST_REQUIRE_MESSAGE(cluster.ok(), (cluster.ok() ? "" : cluster.error().message));
  const auto& troupe = *cluster.value();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"generate", "--raw", std::string(3000, 'x')}, "256"},
      {{"generate", ""}, "prompt"},
      {{"generate", "--temperature", "-1", "hello"}, "temperature"},
      {{"generate", "--temperature", "nan", "hello"}, "temperature"},
      {{"generate", "--top-p", "1.5", "hello"}, "top"},
      {{"generate", "--max-tokens", "0", "hello"}, "max"},
      {{"generate", "--name", "nowhere", "hello"}, "nowhere"},
  };
  for (const auto& [arguments, word] : cases) {
    const auto finished = troupe.troupe(arguments);
    BOOST_REQUIRE(finished.ok());
    BOOST_TEST(finished.value().code != 0, finished.value().output);
    BOOST_TEST(finished.value().output.find(word) != std::string::npos,
               word + " is not in: " + finished.value().output);
  }
  const auto good = troupe.troupe({"generate", "--raw", "--max-tokens", "8", "hello"});
  BOOST_TEST(good.value().code == 0, good.value().output);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_vanishes_frees_what_it_held, Folder) {
  auto cluster = Cluster::start({.model = model, .nodes = 1, .stages = 2});
  BOOST_REQUIRE(cluster.ok());
  auto watcher = cluster.value()->client();
  BOOST_REQUIRE(watcher.ok());
  {
    auto client = cluster.value()->client();
    BOOST_REQUIRE(client.ok());
    // It drops its stream after three tokens and goes away.
    (void)client.value()->generate(request("gone", 200),
                                   [](const GeneratedPiece& piece) { return piece.index < 3; });
  }
  bool freed = false;
  const Instant end = steady_now() + 10s;
  while (!freed && steady_now() < end) {
    const auto status = watcher.value()->status();
    freed = status.ok() && status.value().deployments[0].batcher.kv_blocks_used == 0;
    if (!freed) ::usleep(20'000);
  }
  BOOST_TEST(freed);
}

BOOST_FIXTURE_TEST_CASE(sigterm_with_streams_running_ends_in_time_and_leaves_nothing, Folder) {
  auto cluster = Cluster::start(
      {.model = model, .nodes = 2, .stages = 2, .up_arguments = {"--context", "256"}});
  BOOST_REQUIRE(cluster.ok());
  auto client = Client::connect({cluster.value()->rpc()}, {.resume_max = 1s});
  BOOST_REQUIRE(client.ok());
  std::atomic<int> pieces{0};
  std::thread asking([&] {
    for (int i = 0; i < 50 && pieces >= 0; ++i)
      (void)client.value()->generate(request(fmt::format("long-{}", i), 200),
                                     [&](const GeneratedPiece&) {
                                       ++pieces;
                                       return true;
                                     });
  });
  while (pieces < 5) ::usleep(1000);
  const Instant start = steady_now();
  const auto down = cluster.value()->down();
  const double seconds = to_seconds(steady_now() - start);
  BOOST_TEST(down.ok(), (down.ok() ? "" : down.error().message));
  BOOST_TEST_MESSAGE(fmt::format("down took {:.2f} s", seconds));
  pieces = -1'000'000;
  asking.join();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

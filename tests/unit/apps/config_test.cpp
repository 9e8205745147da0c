// The configuration as it should be: every key read, defaults, flags, the hand-written shape, and
// back to YAML.
#include "apps/node/config.h"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

using namespace troupe;

namespace {

constexpr const char* kFull = R"(
cluster: {id: "0123456789abcdef", name: tests}
node: {id: node-1, role: head, listen: "127.0.0.1:7420", state: /var/lib/troupe, memory: 3GiB,
       realtime: false}
rpc: {listen: "127.0.0.1:7421"}
transport: {kind: ucx, interface: lo, port_range: "31800-31899"}
deployment: {model: /models/a.gguf, name: demo, stages: 3, nodes_expected: 2,
             layer_split: [0, 10, 20],
             context: 4096, streams: 7, threads: 2, kernels: reference, isolation: thread,
             prefill_chunk: 16, rows_max: 99, standby: kv, journal: 64MiB}
log: {level: debug, file: /var/log/troupe.log}
faults: {allow_injection: true}
limits: {waiting_max: 5, clients_max: 6, prompt_bytes_max: 700, drain_deadline: 250ms}
)";

constexpr const char* kWorker = R"(
cluster: {id: "0123456789abcdef"}
node: {id: node-2, role: worker, head: "127.0.0.1:7420", state: /s}
)";

constexpr const char* kListed = R"(
nodes:
  - {id: node-1, ip: 127.0.0.1}
  - {id: node-2, ip: 127.0.0.2}
model_parallelism:
  layer_split: [0, 6, 12]
node: {state: /s}
deployment: {model: /m.gguf}
)";

NodeConfig read(std::string_view text, std::vector<ConfigOverride> overrides = {}) {
  Result<NodeConfig> config = parse_config(text, "test.yaml", overrides);
  BOOST_REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error().message));
  return std::move(config).value();
}

void check_equal_full(const NodeConfig& c) {
  BOOST_TEST(c.cluster.id == "0123456789abcdef");
  BOOST_TEST(c.cluster.name == "tests");
  BOOST_TEST(c.node.id == "node-1");
  BOOST_TEST((c.node.role == NodeRole::kHead));
  BOOST_TEST(c.node.listen == "127.0.0.1:7420");
  BOOST_TEST(c.node.head == "");
  BOOST_TEST(c.node.state == "/var/lib/troupe");
  BOOST_TEST(c.node.memory_bytes == uint64_t{3} << 30);
  BOOST_TEST(!c.node.realtime);
  BOOST_TEST(c.rpc.listen == "127.0.0.1:7421");
  BOOST_TEST((c.transport.kind == TransportKind::kUcx));
  BOOST_TEST(c.transport.interface == "lo");
  BOOST_TEST(c.transport.port_range == "31800-31899");
  BOOST_TEST(c.deployment.model == "/models/a.gguf");
  BOOST_TEST(c.deployment.name == "demo");
  BOOST_TEST(c.deployment.stages == 3U);
  BOOST_TEST(c.deployment.nodes_expected == 2U);
  BOOST_TEST(c.deployment.layer_split == (std::vector<uint32_t>{0, 10, 20}),
             boost::test_tools::per_element());
  BOOST_TEST(c.deployment.context == 4096U);
  BOOST_TEST(c.deployment.streams == 7U);
  BOOST_TEST(c.deployment.threads == 2U);
  BOOST_TEST(c.deployment.kernels == "reference");
  BOOST_TEST((c.deployment.isolation == Isolation::kThread));
  BOOST_TEST(c.deployment.prefill_chunk == 16U);
  BOOST_TEST(c.deployment.rows_max == 99U);
  BOOST_TEST((c.deployment.standby == StandbyPolicy::kKv));
  BOOST_TEST(c.deployment.journal_bytes == uint64_t{64} << 20);
  BOOST_TEST((c.log.level == LogLevel::kDebug));
  BOOST_TEST(c.log.file == "/var/log/troupe.log");
  BOOST_TEST(c.allow_fault_injection);
  BOOST_TEST(c.limits.waiting_max == 5U);
  BOOST_TEST(c.limits.clients_max == 6U);
  BOOST_TEST(c.limits.prompt_bytes_max == 700U);
  BOOST_TEST((c.limits.drain_deadline == Duration{250ms}));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(reads_every_key) {
  check_equal_full(read(kFull));
}

BOOST_AUTO_TEST_CASE(reads_back_what_it_wrote) {
  check_equal_full(read(write_config(read(kFull))));
  const NodeConfig worker = read(write_config(read(kWorker)));
  BOOST_TEST((worker.node.role == NodeRole::kWorker));
  BOOST_TEST(worker.node.head == "127.0.0.1:7420");
}

BOOST_AUTO_TEST_CASE(writes_texts_with_quotes_and_colons_safely) {
  NodeConfig config = read(kFull);
  config.deployment.model = "/models/a \"b\": c #d/\\e.gguf";
  BOOST_TEST(read(write_config(config)).deployment.model == config.deployment.model);
}

BOOST_AUTO_TEST_CASE(a_worker_needs_no_deployment_and_gets_defaults) {
  const NodeConfig config = read(kWorker);
  BOOST_TEST(config.deployment.model == "");
  BOOST_TEST(config.cluster.name == "default");
  BOOST_TEST(config.node.memory_bytes == 0U);
  BOOST_TEST(config.node.listen == "");
  BOOST_TEST((config.deployment.isolation == Isolation::kProcess));
  BOOST_TEST(config.node.realtime);
  BOOST_TEST((config.deployment.standby == StandbyPolicy::kNone));
  BOOST_TEST(config.deployment.journal_bytes == uint64_t{256} << 20);
}

BOOST_AUTO_TEST_CASE(a_journal_may_be_nothing_or_more_than_there_is) {
  for (const auto& [text, bytes] : {std::pair<const char*, uint64_t>{"0", 0},
                                    {"1048577", 1048577},
                                    {"3KiB", 3072},
                                    {"16777215TiB", uint64_t{16777215} << 40}}) {
    const NodeConfig config = read(kFull, {{"deployment.journal", text}});
    BOOST_TEST(config.deployment.journal_bytes == bytes, text);
    BOOST_TEST(read(write_config(config)).deployment.journal_bytes == bytes, text);
  }
}

BOOST_AUTO_TEST_CASE(names_a_deployment_after_its_file) {
  const NodeConfig config = read(kWorker, {{"node.role", "head"},
                                           {"node.head", ""},
                                           {"node.listen", "127.0.0.1:1"},
                                           {"deployment.model", "/m/My Model v1.gguf"}});
  BOOST_TEST(config.deployment.name == "My-Model-v1");
}

BOOST_AUTO_TEST_CASE(flags_override_the_file_and_create_sections) {
  const NodeConfig config = read(kFull, {{"node.listen", "127.0.0.1:9000"},
                                         {"deployment.layer_split", "0,5,9"},
                                         {"faults.allow_injection", "false"}});
  BOOST_TEST(config.node.listen == "127.0.0.1:9000");
  BOOST_TEST(config.deployment.layer_split == (std::vector<uint32_t>{0, 5, 9}),
             boost::test_tools::per_element());
  BOOST_TEST(!config.allow_fault_injection);
  BOOST_TEST((read(kWorker, {{"log.level", "error"}}).log.level == LogLevel::kError));
}

BOOST_AUTO_TEST_CASE(an_empty_file_with_flags_alone_is_enough) {
  const NodeConfig config = read("", {{"cluster.id", "00000000000000ff"},
                                      {"node.id", "n"},
                                      {"node.role", "worker"},
                                      {"node.head", "[::1]:7420"},
                                      {"node.state", "/s"}});
  BOOST_TEST(config.node.head == "[::1]:7420");
}

BOOST_AUTO_TEST_CASE(layer_split_with_the_end_keeps_first_layers_and_the_end_apart) {
  const NodeConfig config = read(kFull, {{"deployment.layer_split", "0,10,20,30"}});
  BOOST_TEST(config.deployment.layer_split == (std::vector<uint32_t>{0, 10, 20}),
             boost::test_tools::per_element());
  BOOST_TEST(config.deployment.layers_expected == 30U);
  BOOST_TEST(read(write_config(config)).deployment.layers_expected == 30U);
}

BOOST_AUTO_TEST_CASE(the_hand_written_shape_makes_the_first_node_head) {
  const NodeConfig head = read(kListed, {{"node.id", "node-1"}});
  BOOST_TEST((head.node.role == NodeRole::kHead));
  BOOST_TEST(head.node.listen == "127.0.0.1:7420");
  BOOST_TEST(head.deployment.nodes_expected == 2U);
  // Two nodes and three numbers: two stages and the end.
  BOOST_TEST(head.deployment.stages == 2U);
  BOOST_TEST(head.deployment.layers_expected == 12U);
  const NodeConfig worker = read(kListed, {{"node.id", "node-2"}});
  BOOST_TEST((worker.node.role == NodeRole::kWorker));
  BOOST_TEST(worker.node.head == "127.0.0.1:7420");
  BOOST_TEST(worker.cluster.id == head.cluster.id);
}

BOOST_AUTO_TEST_CASE(the_hand_written_shape_takes_a_split_of_more_stages_than_nodes) {
  const NodeConfig head =
      read(kListed, {{"node.id", "node-1"}, {"model_parallelism.layer_split", "0,4,8,12"}});
  BOOST_TEST(head.deployment.stages == 4U);
  BOOST_TEST(head.deployment.layers_expected == 0U);
}

BOOST_AUTO_TEST_CASE(loads_files_and_names_missing_ones) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("troupe-config-test-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "a.yaml") << kFull;
  check_equal_full(load_config((folder / "a.yaml").string()).value());
  const auto missing = load_config((folder / "b.yaml").string());
  BOOST_REQUIRE(!missing.ok());
  BOOST_TEST((missing.error().code == ErrorCode::kNotFound));
  const auto directory = load_config(folder.string());
  BOOST_REQUIRE(!directory.ok());
  BOOST_TEST((directory.error().code == ErrorCode::kInvalidFile));
  std::ofstream(folder / "big.yaml") << std::string((1 << 20) + 1, '#');
  const auto big = load_config((folder / "big.yaml").string());
  BOOST_REQUIRE(!big.ok());
  BOOST_TEST((big.error().code == ErrorCode::kInvalidFile));
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(addresses_are_taken_apart_strictly) {
  BOOST_TEST(parse_host_port("127.0.0.1:80").value().port == 80);
  BOOST_TEST(parse_host_port("[::1]:80").value().host == "::1");
  for (const char* bad : {"", ":", "127.0.0.1", "127.0.0.1:", ":80", "h:65536", "h:-1", "h:8x",
                          "::1:80", "[]:80", "[::1:80", "a b:80", "h: 80", "h/x:80"})
    BOOST_TEST(!parse_host_port(bad).ok(), bad);
  for (const char* host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"})
    BOOST_TEST(is_loopback_host(host), host);
  for (const char* host : {"10.0.0.1", "0.0.0.0", "::", "example.org", "128.0.0.1", ""})
    BOOST_TEST(!is_loopback_host(host), host);
}

BOOST_AUTO_TEST_SUITE_END()

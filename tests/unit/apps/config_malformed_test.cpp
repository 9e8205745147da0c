// Configurations that must be refused, each with the words that tell a person what to mend. One
// table: a good file with one section replaced, and what the message must say.
#include <boost/test/unit_test.hpp>
#include <map>

#include "apps/node/config.h"

using namespace troupe;

namespace {

struct BadCase {
  const char*
      section;  // replaced by `yaml`; one that does not exist is added; "" replaces the whole file
  const char* yaml;
  std::vector<const char*> says;  // all of these
};

std::string with_section(const std::string& section, const std::string& yaml) {
  if (section.empty()) return yaml;
  std::map<std::string, std::string> sections{
      {"cluster", R"(cluster: {id: "0123456789abcdef"})"},
      {"node", R"(node: {id: node-1, role: head, listen: "127.0.0.1:7420", state: /s})"},
      {"deployment", "deployment: {model: /m.gguf, stages: 3}"}};
  sections[section] = yaml;
  std::string text;
  for (const auto& [name, lines] : sections) text += lines + "\n";
  return text;
}

// In the text made of the above, cluster is line 1, deployment line 2, node line 3 or 4.
const BadCase kCases[] = {
    {"", "a: [1", {"not YAML", "bad.yaml:"}},
    {"", "- 1\n- 2", {"is a list", "must be a mapping"}},
    {"", "just words", {"must be a mapping"}},
    {"", "a: 1\n---\nb: 2", {"more than one YAML document"}},
    {"clutser", "clutser: {}", {"clutser: unknown key", "did you mean cluster?"}},
    {"cluster", "cluster: {}", {"cluster.id: missing", "16 lower-case"}},
    {"cluster", "cluster: {id: 0123456789ABCDEF}", {"cluster.id: must be 16"}},
    {"cluster", R"(cluster: {id: "0000000000000000"})", {"not all zero"}},
    {"cluster",
     R"(cluster: {id: "0123456789abcdef", name: "a/b"})",
     {"cluster.name", "is no name"}},
    {"cluster", "cluster: 7", {"bad.yaml:1: cluster: is a single value, must be a mapping"}},
    {"node", R"(node: {role: head, listen: "127.0.0.1:1", state: /s})", {"node.id: missing"}},
    {"node",
     R"(node: {id: "a b", role: head, listen: "127.0.0.1:1", state: /s})",
     {"node.id", "no name"}},
    {"node",
     R"(node: {id: a, role: hed, listen: "127.0.0.1:1", state: /s})",
     {"node.role", "\"hed\" must be one of head, worker", "did you mean head?"}},
    {"node", "node: {id: a, role: head, state: /s}", {"node.listen: missing"}},
    {"node",
     R"(node: {id: a, role: head, listen: "127.0.0.1", state: /s})",
     {"node.listen", "host:port"}},
    {"node",
     R"(node: {id: a, role: head, listen: "10.0.0.5:7420", state: /s})",
     {"10.0.0.5 is not a loopback address"}},
    {"node", R"(node: {id: a, role: head, listen: "127.0.0.1:99999", state: /s})", {"host:port"}},
    {"node", R"(node: {id: a, role: worker, state: /s})", {"node.head: missing"}},
    {"node",
     R"(node: {id: a, role: worker, head: "127.0.0.1:0", state: /s})",
     {"port 0 cannot be dialled"}},
    {"node",
     R"(node: {id: a, listen: "127.0.0.1:1", head: "127.0.0.1:2", state: /s})",
     {"a head has no other head"}},
    {"node", R"(node: {id: a, listen: "127.0.0.1:1"})", {"node.state: missing"}},
    {"node",
     R"(node: {id: a, listen: "127.0.0.1:1", state: relative/path})",
     {"must be an absolute path"}},
    {"node",
     R"(node: {id: a, listen: "127.0.0.1:1", state: /s, memory: 8GB})",
     {"node.memory", "8GiB"}},
    {"node", R"(node: {id: a, listen: "127.0.0.1:1", state: /s, memory: -1})", {"number of bytes"}},
    {"node",
     R"(node: {id: a, listen: "127.0.0.1:1", state: /s, memory: 99999999999999TiB})",
     {"number of bytes"}},
    {"node",
     R"(node: {id: a, id: b, listen: "127.0.0.1:1", state: /s})",
     {"node.id: is given twice"}},
    {"node", R"(node: {id: a, lissen: "127.0.0.1:1", state: /s})", {"did you mean node.listen?"}},
    {"node",
     R"(node: {id: a, listen: ["127.0.0.1:1"], state: /s})",
     {"is a list, must be a single value"}},
    {"node", R"(node: {id: a, listen: "127.0.0.1:1", state: "/s\n/t"})", {"control characters"}},
    {"rpc", R"(rpc: {listen: "0.0.0.0:7421"})", {"rpc.listen", "not a loopback address"}},
    {"transport", "transport: {kind: rdma}", {"transport.kind", "one of ucx, loopback"}},
    {"transport", "transport: {interface: a-very-long-interface}", {"at most 15 characters"}},
    {"transport", "transport: {port_range: 31899-31800}", {"first <= last"}},
    {"transport", "transport: {port_range: 80-90}", {"1024 <= first"}},
    {"transport", "transport: {port_range: 2000-70000}", {"<= 65535"}},
    {"transport", "transport: {kind: loopback}", {"isolation thread"}},
    {"deployment", "deployment: {stages: 3}", {"deployment.model: missing"}},
    {"deployment", "deployment: {model: m.gguf}", {"deployment.model", "absolute path"}},
    {"deployment", "deployment: {model: /m, stages: 0}", {"whole number from 1 to 256"}},
    {"deployment", "deployment: {model: /m, stages: 2.5}", {"whole number"}},
    {"deployment", "deployment: {model: /m, stages: three}", {"\"three\" must be a whole number"}},
    {"deployment", "deployment: {model: /m, stages: 99999999999999999999}", {"whole number"}},
    {"deployment",
     "deployment: {model: /m, stages: 3, layer_split: [0, 1]}",
     {"has 2 entries; 3 stages"}},
    {"deployment",
     "deployment: {model: /m, stages: 2, layer_split: [1, 5]}",
     {"must begin with layer 0"}},
    {"deployment", "deployment: {model: /m, stages: 3, layer_split: [0, 5, 5]}", {"must grow"}},
    {"deployment", "deployment: {model: /m, stages: 3, layer_split: [0, x, 5]}", {"\"x\" must be"}},
    {"deployment", "deployment: {model: /m, stages: 3, layer_split: {a: 1}}", {"must be a list"}},
    {"deployment", "deployment: {model: /m, context: 1}", {"deployment.context", "from 16"}},
    {"deployment", "deployment: {model: /m, streams: 100000}", {"deployment.streams"}},
    {"deployment", "deployment: {model: /m, threads: -1}", {"deployment.threads"}},
    {"deployment", "deployment: {model: /m, kernels: avx512}", {"one of auto, avx2, reference"}},
    {"deployment", "deployment: {model: /m, isolation: container}", {"one of process, thread"}},
    {"deployment",
     "deployment: {model: /m, rows_max: 8, prefill_chunk: 9}",
     {"does not fit", "rows_max 8"}},
    {"deployment",
     "deployment: {model: /m, standby: kvv}",
     {"deployment.standby", "\"kvv\" must be one of none, kv", "did you mean kv?"}},
    {"deployment", "deployment: {model: /m, standby: true}", {"\"true\" must be one of none, kv"}},
    {"deployment",
     "deployment: {model: /m, standby: [kv]}",
     {"deployment.standby", "must be a single value"}},
    {"deployment",
     "deployment: {model: /m, journal: 64MB}",
     {"deployment.journal", "\"64MB\" must be a number of bytes", "512MiB"}},
    {"deployment", "deployment: {model: /m, journal: -1}", {"\"-1\" must be a number of bytes"}},
    {"deployment", "deployment: {model: /m, journal: 1.5GiB}", {"must be a number of bytes"}},
    {"deployment", "deployment: {model: /m, journal: 16777216TiB}", {"must be a number of bytes"}},
    {"deployment",
     "deployment: {model: /m, journal: 18446744073709551616}",
     {"must be a number of bytes"}},
    {"deployment", "deployment: {model: /m, jornal: 1}", {"did you mean deployment.journal?"}},
    {"node",
     R"(node: {id: a, role: head, listen: "127.0.0.1:1", state: /s, realtime: no})",
     {"node.realtime", "\"no\" must be one of true, false"}},
    {"node",
     R"(node: {id: a, role: head, listen: "127.0.0.1:1", state: /s, realtime: 50})",
     {"\"50\" must be one of true, false"}},
    {"node",
     R"(node: {id: a, role: head, listen: "127.0.0.1:1", state: /s, real_time: true})",
     {"did you mean node.realtime?"}},
    {"deployment", "deployment: {model: /m, thread: 2}", {"did you mean deployment.threads?"}},
    {"log", "log: {level: loud}", {"log.level", "loud", "debug info warning error"}},
    {"log", "log: {file: here.log}", {"absolute path"}},
    {"faults", "faults: {allow_injection: yes}", {"\"yes\" must be one of true, false"}},
    {"limits", "limits: {drain_deadline: 3}", {"limits.drain_deadline", "250ms or 3s"}},
    {"limits", "limits: {drain_deadline: 3h}", {"must be a duration"}},
    {"limits", "limits: {clients_max: 0}", {"limits.clients_max"}},
    {"nodes", "nodes: []", {"list of 1 to 256 nodes"}},
    {"nodes", "nodes: {id: a}", {"list of 1 to 256 nodes"}},
    {"",
     "nodes: [{id: a, ip: 192.168.1.10}, {id: b, ip: 192.168.1.11}]\nnode: {id: a, state: /s}\n"
     "deployment: {model: /m}",
     {"node.listen", "192.168.1.10 is not a loopback address"}},
    {"nodes",
     "nodes: [{id: x, ip: 127.0.0.1}, {id: y, ip: 127.0.0.1}]",
     {"\"node-1\" is not one of them"}},
    {"nodes",
     "nodes: [{id: node-1, ip: 127.0.0.1, gpu_ids: [0]}]",
     {"nodes[0].gpu_ids", "CPUs only"}},
    {"nodes",
     "nodes: [{id: node-1, ip: 127.0.0.1}, {id: node-1, ip: 127.0.0.1}]",
     {"listed twice"}},
    {"nodes", "nodes: [{id: node-1}]", {"nodes[0].ip: missing"}},
    {"nodes", "nodes: [{id: node-1, ip: 127.0.0.1, gpus: 2}]", {"nodes[0].gpus: unknown key"}},
    {"model_parallelism",
     "model_parallelism: {layer_split: [3, 6, 9]}",
     {"must begin with layer 0"}},
    {"model_parallelism", "model_parallelism: {tensor_split: [1]}", {"tensor_split: unknown key"}},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(malformed_config)

BOOST_AUTO_TEST_CASE(the_good_parts_are_good) {
  const auto config =
      parse_config(with_section("cluster", R"(cluster: {id: "0123456789abcdef"})"), "ok");
  BOOST_REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error().message));
}

BOOST_AUTO_TEST_CASE(each_is_refused_with_words_that_help) {
  for (const BadCase& bad : kCases) {
    const auto config = parse_config(with_section(bad.section, bad.yaml), "bad.yaml");
    BOOST_TEST_CONTEXT(bad.yaml) {
      BOOST_REQUIRE(!config.ok());
      BOOST_TEST((config.error().code == ErrorCode::kInvalidArgument));
      for (const char* words : bad.says)
        BOOST_TEST(config.error().message.find(words) != std::string::npos,
                   "\"" << words << "\" is not in: " << config.error().message);
    }
  }
}

BOOST_AUTO_TEST_CASE(names_file_and_line_of_each_mistake) {
  const auto config =
      parse_config("cluster:\n  id: nonsense\nnode:\n  id: a\n  rolle: head\n", "x.yaml");
  BOOST_REQUIRE(!config.ok());
  const std::string& message = config.error().message;
  BOOST_TEST(message.find("x.yaml:2: cluster.id: ") != std::string::npos, message);
  BOOST_TEST(message.find("x.yaml:5: node.rolle: unknown key; did you mean node.role?") !=
                 std::string::npos,
             message);
}

BOOST_AUTO_TEST_CASE(a_wrong_flag_is_named_as_one) {
  const ConfigOverride overrides[] = {{"node.listen", "nowhere"}, {"node.lissen", "x"}};
  const auto config = parse_config(with_section("log", "log: {}"), "x.yaml", overrides);
  BOOST_REQUIRE(!config.ok());
  BOOST_TEST(config.error().message.find("command line: node.listen: ") != std::string::npos);
  BOOST_TEST(config.error().message.find("command line: node.lissen: unknown key") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(shows_at_most_ten_mistakes) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "wrong" + std::to_string(i) + ": 1\n";
  const auto config = parse_config(text, "x.yaml");
  BOOST_REQUIRE(!config.ok());
  BOOST_TEST(std::count(config.error().message.begin(), config.error().message.end(), '\n') == 10);
  BOOST_TEST(config.error().message.find(" more") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(deep_nesting_and_many_aliases_end_in_an_error) {
  const auto deep = parse_config(std::string(100'000, '['), "x.yaml");
  BOOST_TEST(!deep.ok());
  std::string laughs = "a: &a [1,1,1,1,1,1,1,1,1]\n";
  for (char c = 'b'; c <= 'z'; ++c)
    laughs += std::string(1, c) + ": &" + c + " [*" + static_cast<char>(c - 1) + ",*" +
              static_cast<char>(c - 1) + "]\n";
  const auto many = parse_config(laughs, "x.yaml");
  BOOST_TEST(!many.ok());
}

BOOST_AUTO_TEST_SUITE_END()

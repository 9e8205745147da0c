#include "apps/node/config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/node/config_reader.h"
#include "base/digest.h"

namespace troupe {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr uint32_t kStagesMax = 256, kNodesMax = 256, kLayersMax = 4096;
constexpr uint16_t kPeerPort = 7420;

bool is_cluster_id(std::string_view id) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return id.size() == 16 && std::all_of(id.begin(), id.end(), hex) && id != "0000000000000000";
}

void read_cluster(ConfigSection section, ClusterConfig& into) {
  section.text("id", into.id);
  section.name("name", into.name);
  if (!is_cluster_id(into.id))
    section.wrong("id", into.id.empty() ? "missing; 16 lower-case hexadecimal digits are needed"
                                        : "must be 16 lower-case hexadecimal digits, not all zero");
  section.refuse_unknown_keys();
}

// Peer links and client RPC have no encryption yet: nothing may listen or dial beyond this host.
void read_address(ConfigSection& section, const char* key, std::string& into, bool port_zero) {
  std::string seen = into;
  section.text(key, seen);
  if (seen.empty()) return;
  const Result<HostPort> address = parse_host_port(seen);
  if (!address.ok()) return section.wrong(key, address.error().message);
  if (!is_loopback_host(address.value().host))
    return section.wrong(key, address.value().host +
                                  " is not a loopback address; without TLS, which this version "
                                  "does not have yet, only 127.0.0.1 and ::1 are allowed");
  if (address.value().port == 0 && !port_zero)
    return section.wrong(key, "port 0 cannot be dialled; name the port the head listens on");
  into = seen;
}

void read_node(ConfigSection section, NodeSettings& into) {
  section.name("id", into.id);
  section.choice("role", into.role, {{"head", NodeRole::kHead}, {"worker", NodeRole::kWorker}});
  read_address(section, "listen", into.listen, true);
  read_address(section, "head", into.head, false);
  section.path("state", into.state);
  section.bytes("memory", into.memory_bytes);
  section.flag("realtime", into.realtime);
  if (into.id.empty() && !section.has("id")) section.wrong("id", "missing");
  if (into.state.empty() && !section.has("state"))
    section.wrong("state", "missing; a directory for what the node keeps is needed");
  if (into.role == NodeRole::kHead) {
    if (into.listen.empty() && !section.has("listen"))
      section.wrong("listen", "missing; a head must listen for its workers");
    if (!into.head.empty()) section.wrong("head", "a head has no other head; leave it out");
  } else if (into.head.empty() && !section.has("head")) {
    section.wrong("head", "missing; a worker must know where its head listens");
  }
  section.refuse_unknown_keys();
}

void read_rpc(ConfigSection section, NodeRole role, RpcConfig& into) {
  read_address(section, "listen", into.listen, true);
  if (role == NodeRole::kWorker && !into.listen.empty())
    section.wrong("listen", "only a head serves clients; leave it out on a worker");
  section.refuse_unknown_keys();
}

bool is_port_range(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return false;
  const auto port = [](std::string_view digits) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc{} && end == digits.data() + digits.size() && value <= 65535 ? value
                                                                                          : 0;
  };
  const uint32_t first = port(text.substr(0, dash)), last = port(text.substr(dash + 1));
  return first >= 1024 && first <= last;
}

void read_transport(ConfigSection section, TransportConfig& into) {
  section.choice("kind", into.kind,
                 {{"ucx", TransportKind::kUcx}, {"loopback", TransportKind::kLoopback}});
  section.name("interface", into.interface);
  if (into.interface.size() > 15)
    section.wrong("interface", "a network interface's name has at most 15 characters");
  section.text("port_range", into.port_range);
  if (!into.port_range.empty() && !is_port_range(into.port_range))
    section.wrong(
        "port_range",
        "must be first-last with 1024 <= first <= last <= 65535, for example 31800-31899");
  section.refuse_unknown_keys();
}

// S first layers, or S+1 boundaries of which the last is the model's number of layers.
void check_layer_split(ConfigSection& section, const char* key, DeploymentConfig& into) {
  std::vector<uint32_t>& split = into.layer_split;
  if (split.empty()) return;
  if (split.size() != into.stages && split.size() != into.stages + 1)
    return section.wrong(
        key, fmt::format("has {} entries; {} stages need {} first layers, or {} with the end",
                         split.size(), into.stages, into.stages, into.stages + 1));
  if (split.front() != 0) return section.wrong(key, "must begin with layer 0");
  for (size_t i = 1; i < split.size(); ++i)
    if (split[i] <= split[i - 1])
      return section.wrong(key,
                           fmt::format("must grow; {} comes after {}", split[i], split[i - 1]));
  if (split.size() == into.stages + 1) {
    into.layers_expected = split.back();
    split.pop_back();
  }
}

// "/models/My Model.gguf" -> "My-Model".
std::string name_of_file(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string().substr(0, 64);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '-';
  return name;
}

void read_deployment(ConfigSection section, const NodeConfig& config, bool split_elsewhere,
                     DeploymentConfig& into) {
  section.path("model", into.model);
  if (into.name.empty() && !into.model.empty()) into.name = name_of_file(into.model);
  section.name("name", into.name);
  section.number("stages", into.stages, 1, kStagesMax);
  section.number("nodes_expected", into.nodes_expected, 1, kNodesMax);
  if (!split_elsewhere) {
    section.numbers("layer_split", into.layer_split, kLayersMax, kStagesMax + 1);
    check_layer_split(section, "layer_split", into);
  }
  section.number("context", into.context, 16, 1U << 20);
  section.number("streams", into.streams, 1, 4096);
  section.number("threads", into.threads, 1, 256);
  section.choice("kernels", into.kernels,
                 {{"auto", std::string("auto")},
                  {"avx2", std::string("avx2")},
                  {"reference", std::string("reference")}});
  section.choice("isolation", into.isolation,
                 {{"process", Isolation::kProcess}, {"thread", Isolation::kThread}});
  section.number("rows_max", into.rows_max, 1, 8192);
  section.number("prefill_chunk", into.prefill_chunk, 1, 8192);
  section.choice("standby", into.standby,
                 {{"none", StandbyPolicy::kNone},
                  {"kv", StandbyPolicy::kKv},
                  {"input", StandbyPolicy::kInput}});
  section.bytes("journal", into.journal_bytes);
  if (into.prefill_chunk > into.rows_max)
    section.wrong("prefill_chunk", fmt::format("{} does not fit into a micro-batch of rows_max {}",
                                               into.prefill_chunk, into.rows_max));
  if (config.node.role == NodeRole::kHead && into.model.empty() && !section.has("model"))
    section.wrong("model", "missing; a head must know what to serve");
  if (config.transport.kind == TransportKind::kLoopback &&
      (into.isolation != Isolation::kThread || into.nodes_expected != 1))
    section.wrong("isolation",
                  "the loopback transport stays inside one process: it needs isolation thread and "
                  "nodes_expected 1");
  section.refuse_unknown_keys();
}

void read_log(ConfigSection section, LogConfig& into) {
  std::string level;
  section.text("level", level);
  if (!level.empty()) {
    const Result<LogLevel> parsed = parse_log_level(level);
    if (parsed.ok()) {
      into.level = parsed.value();
    } else {
      section.wrong("level", parsed.error().message);
    }
  }
  section.path("file", into.file);
  section.refuse_unknown_keys();
}

void read_limits(ConfigSection section, LimitsConfig& into) {
  section.number("waiting_max", into.waiting_max, 1, 1U << 20);
  section.number("clients_max", into.clients_max, 1, 65536);
  section.number("prompt_bytes_max", into.prompt_bytes_max, 1, 64U << 20);
  section.duration("drain_deadline", into.drain_deadline, Duration{0}, 600s);
  section.refuse_unknown_keys();
}

struct ListedNode {
  std::string id, ip;
};

std::vector<ListedNode> read_node_list(ConfigMistakes& mistakes, const YAML::Node& list) {
  std::vector<ListedNode> nodes;
  if (!list.IsSequence() || list.size() == 0 || list.size() > kNodesMax) {
    mistakes.add(list, "nodes", fmt::format("must be a list of 1 to {} nodes", kNodesMax));
    return nodes;
  }
  for (const auto& item : list) {
    ConfigSection section(mistakes, fmt::format("nodes[{}]", nodes.size()), item);
    ListedNode node;
    section.name("id", node.id);
    section.text("ip", node.ip);
    if (node.id.empty() && !section.has("id")) section.wrong("id", "missing");
    if (node.ip.empty()) section.wrong("ip", "missing");
    std::vector<uint32_t> gpus;
    section.numbers("gpu_ids", gpus, 4096, 64);
    if (!gpus.empty()) section.wrong("gpu_ids", "this version computes on CPUs only; leave it out");
    section.refuse_unknown_keys();
    const auto same = [&](const ListedNode& other) { return other.id == node.id; };
    if (std::any_of(nodes.begin(), nodes.end(), same))
      section.wrong("id", fmt::format("\"{}\" is listed twice", node.id));
    nodes.push_back(node);
  }
  return nodes;
}

// The hand-written shape sets the defaults of the full one, whose keys may still stand beside it.
void read_listed_shape(ConfigSection& root, ConfigMistakes& mistakes,
                       const YAML::Node& node_section, NodeConfig& config) {
  const std::vector<ListedNode> nodes = read_node_list(mistakes, root.child("nodes"));
  if (nodes.empty()) return;
  std::string members;
  for (const ListedNode& node : nodes) members += node.id + "=" + node.ip + "\n";
  const uint64_t id = digest64(as_byte_span(members));
  config.cluster.id = to_hex(id == 0 ? 1 : id);
  config.deployment.stages = config.deployment.nodes_expected = static_cast<uint32_t>(nodes.size());

  std::string own;
  ConfigMistakes ignored("", {});  // read_node reports what is wrong with it
  ConfigSection(ignored, "node", node_section).name("id", own);
  if (own.empty() && nodes.size() == 1) own = nodes.front().id;
  const auto listed =
      std::find_if(nodes.begin(), nodes.end(), [&](const ListedNode& n) { return n.id == own; });
  if (listed == nodes.end())
    return root.wrong("nodes", own.empty() ? "node.id must say which of these nodes this daemon is"
                                           : fmt::format("node.id \"{}\" is not one of them", own));
  const auto address = [](const ListedNode& node) {
    const bool six = node.ip.find(':') != std::string::npos;
    return six ? fmt::format("[{}]:{}", node.ip, kPeerPort)
               : fmt::format("{}:{}", node.ip, kPeerPort);
  };
  config.node.id = own;
  if (listed == nodes.begin()) {
    config.node.role = NodeRole::kHead;
    config.node.listen = address(*listed);
  } else {
    config.node.role = NodeRole::kWorker;
    config.node.head = address(nodes.front());
  }
}

void read_parallelism(ConfigSection section, DeploymentConfig& into, bool stages_given) {
  section.numbers("layer_split", into.layer_split, kLayersMax, kStagesMax + 1);
  const auto length = static_cast<uint32_t>(into.layer_split.size());
  // One stage a node, unless the list is as long as the nodes have no use for.
  if (!stages_given && length > 0 && length != into.stages && length != into.stages + 1)
    into.stages = length;
  check_layer_split(section, "layer_split", into);
  section.refuse_unknown_keys();
}

NodeConfig read_config(const YAML::Node& document, ConfigMistakes& mistakes) {
  NodeConfig config;
  ConfigSection root(mistakes, "", document);
  const YAML::Node node_section = root.child("node"), deployment = root.child("deployment");
  const auto section = [&](const char* key) {
    return ConfigSection(mistakes, key, root.child(key));
  };
  if (root.has("nodes")) read_listed_shape(root, mistakes, node_section, config);
  read_cluster(section("cluster"), config.cluster);
  read_node(section("node"), config.node);
  read_rpc(section("rpc"), config.node.role, config.rpc);
  read_transport(section("transport"), config.transport);
  const bool split_elsewhere = root.has("model_parallelism");
  read_deployment(section("deployment"), config, split_elsewhere, config.deployment);
  if (split_elsewhere) {
    const bool stages_given = deployment.IsDefined() && deployment.IsMap() && deployment["stages"];
    read_parallelism(section("model_parallelism"), config.deployment, stages_given);
  }
  read_log(section("log"), config.log);
  ConfigSection faults = section("faults");
  faults.flag("allow_injection", config.allow_fault_injection);
  faults.refuse_unknown_keys();
  read_limits(section("limits"), config.limits);
  root.refuse_unknown_keys();
  return config;
}

// Sets section.key in the tree, where the section is a mapping or missing; the reader reports one
// that is not.
void apply_override(YAML::Node& document, const ConfigOverride& override_) {
  if (!document.IsMap() && !document.IsNull()) return;
  const size_t dot = override_.key.find('.');
  if (dot == std::string::npos) {
    document[override_.key] = override_.value;
    return;
  }
  YAML::Node section = document[override_.key.substr(0, dot)];
  if (section.IsDefined() && !section.IsMap() && !section.IsNull()) return;
  section[override_.key.substr(dot + 1)] = override_.value;
}

}  // namespace

Result<NodeConfig> parse_config(std::string_view text, const std::string& file,
                                std::span<const ConfigOverride> overrides) {
  if (text.size() > kConfigBytesMax)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{}: has {} bytes, a configuration may have {}", file, text.size(),
                             kConfigBytesMax)};
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1)
      return Error{ErrorCode::kInvalidArgument, file + ": has more than one YAML document"};
    YAML::Node document = documents.empty() ? YAML::Node() : documents.front();
    std::vector<std::string> flags;
    for (const ConfigOverride& override_ : overrides) {
      apply_override(document, override_);
      flags.push_back(override_.key);
    }
    ConfigMistakes mistakes(file, std::move(flags));
    NodeConfig config = read_config(document, mistakes);
    if (!mistakes.none()) return mistakes.error();
    return config;
  } catch (const YAML::Exception& error) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: not YAML: {}", file, error.mark.line + 1, error.msg)};
  }
}

Result<NodeConfig> load_config(const std::string& path, std::span<const ConfigOverride> overrides) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure))
    return Error{ErrorCode::kNotFound, "configuration " + path + ": no such file"};
  if (!std::filesystem::is_regular_file(path, failure))
    return Error{ErrorCode::kInvalidFile, "configuration " + path + ": not a regular file"};
  std::ifstream file(path, std::ios::binary);
  std::string text(kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof()))
    return Error{ErrorCode::kIo, "configuration " + path + ": cannot be read"};
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_config(text, path, overrides);
}

const char* to_string(NodeRole role) {
  return role == NodeRole::kHead ? "head" : "worker";
}
const char* to_string(TransportKind kind) {
  return kind == TransportKind::kUcx ? "ucx" : "loopback";
}
const char* to_string(Isolation isolation) {
  return isolation == Isolation::kProcess ? "process" : "thread";
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [&] {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("\"{}\" must be host:port, for example 127.0.0.1:7420 or [::1]:7420",
                             text.substr(0, 80))};
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong();
  HostPort address;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc{} || end != digits.data() + digits.size()) return wrong();
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong();
  }
  const auto fits = [](char c) { return c > ' ' && c < 127 && c != '[' && c != ']' && c != '/'; };
  if (host.empty() || host.size() > 255 || !std::all_of(host.begin(), host.end(), fits))
    return wrong();
  address.host = host;
  return address;
}

bool is_loopback_host(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace troupe

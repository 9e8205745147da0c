// The configuration as YAML, with the words a person needs to change it by hand.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "apps/node/config.h"

namespace troupe {
namespace {

std::string quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "info";
}

std::string deployment_section(const NodeConfig& config) {
  const DeploymentConfig& d = config.deployment;
  std::string text = "deployment:\n";
  if (!d.model.empty()) text += fmt::format("  model: {}\n", quoted(d.model));
  if (!d.name.empty()) text += fmt::format("  name: {}\n", quoted(d.name));
  text += fmt::format("  stages: {}\n  nodes_expected: {}\n", d.stages, d.nodes_expected);
  if (!d.layer_split.empty()) {
    std::vector<uint32_t> split = d.layer_split;
    if (d.layers_expected != 0) split.push_back(d.layers_expected);
    text += fmt::format("  layer_split: [{}]\n", fmt::join(split, ", "));
  }
  text += fmt::format(
      "  context: {}        # tokens a sequence may have, prompt included\n"
      "  streams: {}        # sequences at once\n"
      "  threads: {}        # of each stage\n"
      "  kernels: {}\n  isolation: {}\n  prefill_chunk: {}\n  rows_max: {}\n"
      "  standby: {}        # none, or kv: a standby of each stage follows its KV cache\n"
      "  journal: {}        # bytes of its output that a stage keeps for the next one\n",
      d.context, d.streams, d.threads, d.kernels, to_string(d.isolation), d.prefill_chunk,
      d.rows_max, to_string(d.standby), d.journal_bytes);
  return text;
}

// What only tests need is written only if it is there.
std::string faults_section(const FaultsConfig& faults) {
  std::string text = fmt::format("faults:\n  allow_injection: {}\n", faults.allow_injection);
  if (faults.split_k) text += "  split_k: true\n";
  if (faults.poison_seed != 0)
    text += fmt::format("  poison_seed: {}\n  poison_stage: {}\n", faults.poison_seed,
                        faults.poison_stage);
  return text;
}

}  // namespace

std::string write_config(const NodeConfig& config) {
  const NodeSettings& node = config.node;
  std::string text = fmt::format("cluster:\n  id: {}\n  name: {}\n", quoted(config.cluster.id),
                                 quoted(config.cluster.name));
  text += fmt::format("node:\n  id: {}\n  role: {}\n", quoted(node.id), to_string(node.role));
  if (!node.listen.empty()) text += fmt::format("  listen: {}\n", quoted(node.listen));
  if (!node.head.empty()) text += fmt::format("  head: {}\n", quoted(node.head));
  text += fmt::format("  state: {}\n", quoted(node.state));
  text += fmt::format(
      "  memory: {}        # bytes offered to stages; 0: three quarters of what is free\n",
      node.memory_bytes);
  text += fmt::format("  realtime: {}\n", node.realtime);
  if (!config.rpc.listen.empty())
    text += fmt::format("rpc:\n  listen: {}\n", quoted(config.rpc.listen));
  text += fmt::format("transport:\n  kind: {}\n  interface: {}\n  port_range: {}\n",
                      to_string(config.transport.kind), quoted(config.transport.interface),
                      quoted(config.transport.port_range));
  text += deployment_section(config);
  text += fmt::format("log:\n  level: {}\n", level_name(config.log.level));
  if (!config.log.file.empty()) text += fmt::format("  file: {}\n", quoted(config.log.file));
  text += faults_section(config.faults);
  const LimitsConfig& limits = config.limits;
  text += fmt::format(
      "limits:\n  waiting_max: {}\n  clients_max: {}\n  prompt_bytes_max: {}\n  drain_deadline: "
      "{}ms\n",
      limits.waiting_max, limits.clients_max, limits.prompt_bytes_max,
      static_cast<int64_t>(to_milliseconds(limits.drain_deadline)));
  return text;
}

}  // namespace troupe

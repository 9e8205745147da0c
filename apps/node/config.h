// What a daemon is told: one YAML file (docs/HACKING.md shows it whole), checked completely before
// anything starts. An unknown key, a wrong type, a value out of range or two settings that
// contradict each other is an error with file and line, what was seen and what is allowed. Flags
// override the file; they are checked the same way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "base/result.h"
#include "base/time.h"
#include "base/view.h"

namespace troupe {

struct ClusterConfig {
  std::string id;  // 16 lower-case hexadecimal digits, not all zero; equal on all nodes
  std::string name = "default";
};

enum class NodeRole : uint8_t { kHead, kWorker };

struct NodeSettings {
  NodeId id;
  NodeRole role = NodeRole::kHead;
  std::string
      listen;         // peer links, "127.0.0.1:7420"; port 0 picks one; a worker may leave it empty
  std::string head;   // workers: where the head listens
  std::string state;  // absolute path of a directory for the ledger and the like
  uint64_t memory_bytes = 0;  // offered to stages; 0: three quarters of what is free
  // Threads that beat and pass messages on take the lowest real-time priority, where they may.
  bool realtime = true;
};

struct RpcConfig {
  std::string listen;  // head only; empty: no client RPC
};

enum class TransportKind : uint8_t { kUcx, kLoopback };

struct TransportConfig {
  TransportKind kind = TransportKind::kUcx;
  std::string interface = "lo";  // naming another one declares its network trusted
  std::string port_range;        // "31800-31899"; empty: any port
};

enum class Isolation : uint8_t { kProcess, kThread };

struct DeploymentConfig {
  std::string model;  // absolute path of a GGUF file; never empty on a head
  std::string name;   // by default the file's name without its extension
  uint32_t stages = 1;
  uint32_t nodes_expected = 1;  // placement waits for so many, then goes on without after a while
  std::vector<uint32_t> layer_split;  // first layer of each stage; empty: even by memory
  uint32_t layers_expected = 0;       // the end that an S+1 long layer_split gave; 0: not said
  uint32_t context = 2048;            // tokens a sequence may have, prompt included
  uint32_t streams = 32;              // sequences at once; KV blocks follow
  uint32_t threads = 1;               // of each stage
  std::string kernels = "auto";       // auto, avx2, reference
  Isolation isolation = Isolation::kProcess;
  uint32_t prefill_chunk = 64;  // prompt tokens of one sequence in a micro-batch
  uint32_t rows_max = 256;      // tokens in a micro-batch
  StandbyPolicy standby = StandbyPolicy::kNone;
  uint64_t journal_bytes = uint64_t{256} << 20;  // of its output a stage keeps; 0: nothing
};

struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  std::string file;  // absolute path; empty: standard error
};

struct LimitsConfig {
  uint32_t waiting_max = 1024;           // requests accepted but not yet running
  uint32_t clients_max = 256;            // RPC connections
  uint32_t prompt_bytes_max = 1U << 20;  // of one request's text
  Duration drain_deadline = 3s;          // SIGTERM: how long running streams may take to end
};

// What tests break on purpose. Everything here needs allow_injection.
struct FaultsConfig {
  bool allow_injection = false;  // clients may break stages
  bool split_k = false;          // kernels whose bits depend on their batch: the negative control
  uint32_t poison_seed = 0;      // a request of this seed kills every life of one stage; 0: none
  uint32_t poison_stage = 0;
};

struct NodeConfig {
  ClusterConfig cluster;
  NodeSettings node;
  RpcConfig rpc;
  TransportConfig transport;
  DeploymentConfig deployment;
  LogConfig log;
  FaultsConfig faults;
  LimitsConfig limits;
};

// One setting from the command line: {"node.listen", "127.0.0.1:7421"}; lists as "0,10,20".
struct ConfigOverride {
  std::string key;
  std::string value;
};

// Also takes the hand-written shape
//   nodes: [{id: node-1, ip: 127.0.0.1}, …]   model_parallelism: {layer_split: [0, 6, 12]}
// in which the first node is the head, node.id (usually a flag) says which of them this daemon is,
// and the cluster id follows from the list. What it can say and this version cannot do (GPUs, other
// hosts) is an error. `file` is only named in messages. Errors: kInvalidArgument; one line for each
// of the first ten mistakes.
Result<NodeConfig> parse_config(std::string_view text, const std::string& file,
                                std::span<const ConfigOverride> overrides = {});
// Errors: also kNotFound, kIo, kInvalidFile (over 1 MiB).
Result<NodeConfig> load_config(const std::string& path,
                               std::span<const ConfigOverride> overrides = {});
// YAML that parse_config reads back to the same values.
std::string write_config(const NodeConfig& config);

const char* to_string(NodeRole role);
const char* to_string(TransportKind kind);
const char* to_string(Isolation isolation);

// "127.0.0.1:7420" or "[::1]:7420" or "localhost:7420". Errors: kInvalidArgument.
struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};
Result<HostPort> parse_host_port(std::string_view text);
bool is_loopback_host(std::string_view host);

}  // namespace troupe

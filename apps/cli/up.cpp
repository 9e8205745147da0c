// troupe up: a cluster of daemons on this machine, for trying out and for small work.
#include "apps/cli/up.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>

#include "apps/cli/command.h"
#include "apps/cli/daemon_process.h"
#include "apps/cli/pull_model.h"
#include "apps/cli/terminal.h"
#include "base/prng.h"

namespace fs = std::filesystem;

namespace troupe::cli {
namespace {

std::string loopback(uint32_t port) {
  return fmt::format("127.0.0.1:{}", port);
}

// What every node of the cluster is told alike.
NodeConfig common_config(const UpOptions& options, const std::string& model_path) {
  NodeConfig config;
  config.cluster.id = to_hex(random_u64());
  config.cluster.name = options.name;
  config.deployment = options.deployment;
  config.deployment.model = model_path;
  config.deployment.name = deployment_name(options.model);
  config.deployment.stages = options.stages == 0 ? options.nodes : options.stages;
  config.deployment.nodes_expected = options.nodes;
  config.allow_fault_injection = options.allow_fault_injection;
  config.node.realtime = options.realtime;
  config.log.level = options.log_level;
  return config;
}

NodeConfig node_config(NodeConfig config, const UpOptions& options, uint32_t index,
                       const std::string& folder) {
  config.node.id = fmt::format("node-{}", index + 1);
  config.node.state = folder + "/state";
  if (index == 0) {
    config.node.role = NodeRole::kHead;
    config.node.listen = loopback(options.port);
    config.rpc.listen = loopback(options.port + 1);
  } else {
    config.node.role = NodeRole::kWorker;
    config.node.head = loopback(options.port);
  }
  return config;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return Error{ErrorCode::kIo, path + ": cannot be written"};
  return {};
}

// Refuses to start a second cluster of a name.
Result<void> check_not_running(const std::string& name) {
  const Result<ClusterRecord> old = load_cluster_record(name);
  if (!old.ok()) {
    if (old.error().code == ErrorCode::kNotFound) return {};
    return old.error();
  }
  for (const DaemonRecord& daemon : old.value().daemons)
    if (is_running(daemon))
      return Error{ErrorCode::kAlreadyExists,
                   fmt::format("cluster \"{}\" is running (its {} is process {}); end it with "
                               "\"troupe down{}\", or start another with --name and --port",
                               name, daemon.node, daemon.process,
                               name == "default" ? "" : " --name " + name)};
  return {};
}

// What an ended cluster of this name left is removed: its nodes' folders and nothing else.
Result<std::string> prepare_folder(const std::string& name) {
  TROUPE_TRY(const std::string folder, cluster_folder(name));
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure))
    if (entry.path().filename().string().starts_with("node-"))
      fs::remove_all(entry.path(), failure);
  fs::create_directories(folder, failure);
  if (failure)
    return Error{ErrorCode::kIo, fmt::format("cannot create {}: {}", folder, failure.message())};
  return folder;
}

}  // namespace

std::string deployment_name(const std::string& model) {
  for (const ModelSource& source : built_in_models())
    if (source.name == model) return model;
  std::string name = fs::path(model).stem().string().substr(0, 64);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '-';
  return name.empty() ? "model" : name;
}

// The configuration's own reader, so that the flag takes what the file takes.
Result<uint64_t> parse_bytes(const std::string& text) {
  const ConfigOverride settings[] = {
      {"cluster.id", "0000000000000001"}, {"node.id", "any"},      {"node.role", "worker"},
      {"node.head", "127.0.0.1:1"},       {"node.state", "/none"}, {"deployment.journal", text}};
  const Result<NodeConfig> config = parse_config("", "troupe up", settings);
  if (config.ok()) return config.value().deployment.journal_bytes;
  Error why = config.error();
  const size_t seen = why.message.find('"');  // before it is the setting's name
  if (seen != std::string::npos) why.message.erase(0, seen);
  return why;
}

Result<ClusterRecord> write_cluster(const UpOptions& options, const std::string& model_path) {
  TROUPE_TRY_VOID(check_not_running(options.name));
  for (const uint32_t port : {options.port, options.port + 1})
    TROUPE_TRY_VOID(check_port_free(static_cast<uint16_t>(port)));
  TROUPE_TRY(const std::string folder, prepare_folder(options.name));
  const NodeConfig common = common_config(options, model_path);
  ClusterRecord record{.name = options.name,
                       .cluster_id = common.cluster.id,
                       .rpc = loopback(options.port + 1),
                       .model = options.model,
                       .daemons = {}};
  for (uint32_t index = 0; index < options.nodes; ++index) {
    DaemonRecord daemon;
    daemon.node = fmt::format("node-{}", index + 1);
    daemon.folder = folder + "/" + daemon.node;
    std::error_code failure;
    fs::create_directories(daemon.folder + "/state", failure);
    if (failure)
      return Error{ErrorCode::kIo, fmt::format("{}: {}", daemon.folder, failure.message())};
    const std::string text = write_config(node_config(common, options, index, daemon.folder));
    // What the daemon will read is checked here, where the user sees the answer.
    TROUPE_TRY_VOID(write_file(daemon.config(), text));
    const Result<NodeConfig> read_back = load_config(daemon.config());
    if (!read_back.ok()) return read_back.error();
    record.daemons.push_back(std::move(daemon));
  }
  return record;
}

namespace {

int up(const UpOptions& options) {
  const Result<std::string> program = daemon_program();
  if (!program.ok()) return report(program.error());
  const Result<std::string> path = model_path(options.model);
  if (!path.ok()) return report(path.error());
  Result<ClusterRecord> written = write_cluster(options, path.value());
  if (!written.ok()) return report(written.error());
  ClusterRecord record = std::move(written).value();

  std::atomic<bool> interrupted{false};
  const InterruptWatch watch([&] { interrupted = true; });
  ProgressLine progress;
  const Result<void> served =
      start_and_wait(options, program.value(), record, progress, interrupted);
  progress.finish();
  if (!served.ok()) {
    stop_daemons(record.daemons, 5s, {});
    (void)remove_cluster_record(record.name);  // told below is what went wrong first
    return interrupted ? kExitInterrupted : report(served.error());
  }
  const std::string other = options.name == "default" ? "" : " --name " + options.name;
  fmt::print("\n{} is up: {} of {} in {} stages, client RPC on {}\n\nNow try\n", options.name,
             record.daemons.size() == 1 ? "1 node" : fmt::format("{} nodes", record.daemons.size()),
             deployment_name(options.model), options.stages == 0 ? options.nodes : options.stages,
             record.rpc);
  fmt::print(
      "  troupe generate{0} \"Why is the sky blue?\"\n  troupe chat{0}\n"
      "  troupe status{0} --watch\n  troupe down{0}\n",
      other);
  return kExitOk;
}

// Listed as "0,10,20" like in the configuration.
Result<std::vector<uint32_t>> parse_layer_split(const std::string& text) {
  std::vector<uint32_t> split;
  size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + comma, layer);
    if (error != std::errc{} || end != text.data() + comma)
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("--layer-split \"{}\": must be layer numbers, for example 0,10,20", text)};
    split.push_back(layer);
    begin = comma + 1;
  }
  return split;
}

struct UpCommand {
  UpOptions options;
  std::string layer_split, isolation = "process", log_level = "info", standby = "none";
  std::string journal = fmt::format("{}MiB", DeploymentConfig{}.journal_bytes >> 20);
  bool no_realtime = false;
};

int parse_and_up(UpCommand& command) {
  UpOptions& options = command.options;
  Result<std::vector<uint32_t>> split = parse_layer_split(command.layer_split);
  if (!split.ok()) return report_usage(split.error().message);
  options.deployment.layer_split = std::move(split).value();
  if (options.stages == 0 && !options.deployment.layer_split.empty())
    options.stages = static_cast<uint32_t>(options.deployment.layer_split.size());
  options.deployment.isolation =
      command.isolation == "thread" ? Isolation::kThread : Isolation::kProcess;
  const Result<LogLevel> level = parse_log_level(command.log_level);
  if (!level.ok()) return report_usage(level.error().message);
  options.log_level = level.value();
  options.deployment.standby = standby_policy(command.standby).value_or(StandbyPolicy::kNone);
  const Result<uint64_t> journal = parse_bytes(command.journal);
  if (!journal.ok()) return report_usage("--journal " + journal.error().message);
  options.deployment.journal_bytes = journal.value();
  options.realtime = !command.no_realtime;
  return up(options);
}

void add_deployment_options(CLI::App& app, UpCommand& command) {
  DeploymentConfig& deployment = command.options.deployment;
  app.add_option("--stages", command.options.stages, "Cut the model into so many; default: --nodes")
      ->check(CLI::Range(1U, 256U));
  app.add_option("--layer-split", command.layer_split,
                 "First layer of each stage, for example 0,10,20; default: even");
  app.add_option("--threads", deployment.threads, "Threads of each stage")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  app.add_option("--context", deployment.context, "Tokens a request may have, prompt included")
      ->check(CLI::Range(16U, 1U << 20))
      ->capture_default_str();
  app.add_option("--streams", deployment.streams, "Requests at once")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  app.add_option("--prefill-chunk", deployment.prefill_chunk, "Prompt tokens in one micro-batch")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  app.add_option("--kernels", deployment.kernels, "auto, avx2 or reference")
      ->check(CLI::IsMember({"auto", "avx2", "reference"}))
      ->capture_default_str();
  app.add_option("--standby", command.standby,
                 "none, kv or input. kv: a standby of each stage on another node follows its KV\n"
                 "cache and takes its seat at once when it is lost; costs the memory of every\n"
                 "stage once more and some per cent of its time. input: it executes everything,\n"
                 "too, and what only one of the two computed is shown to nobody.\n"
                 "troupe standby changes it later")
      ->check(CLI::IsMember({"none", "kv", "input"}))
      ->capture_default_str();
  app.add_option("--journal", command.journal,
                 "Memory in which a stage keeps what it sent on, for example 64MiB: a stage that\n"
                 "was lost catches up from it. With less, or 0, the stages before it compute\n"
                 "again what it lacks")
      ->capture_default_str();
  app.add_option("--isolation", command.isolation,
                 "process: each stage in a process of its own; thread: inside its daemon")
      ->check(CLI::IsMember({"process", "thread"}))
      ->capture_default_str();
}

}  // namespace

void add_up(CLI::App& app, int& exit_code) {
  const auto state = std::make_shared<UpCommand>();
  UpOptions& options = state->options;
  CLI::App* command = app.add_subcommand("up", "Start a cluster of daemons on this machine");
  command->add_option("model", options.model, "A model's name or a GGUF file")->required();
  command->add_option("--nodes", options.nodes, "How many daemons")
      ->check(CLI::Range(1U, 64U))
      ->capture_default_str();
  add_deployment_options(*command, *state);
  command->add_option("--name", options.name, "The cluster's name")->capture_default_str();
  command->add_option("--port", options.port, "First port; client RPC is on the next one")
      ->check(CLI::Range(1024U, 65534U))
      ->capture_default_str();
  command->add_option("--timeout", options.timeout_seconds, "Seconds until it must serve")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command->add_flag(
      "--no-realtime", state->no_realtime,
      "Keep the daemons' threads that beat and pass messages on at ordinary\n"
      "priority. Nothing then goes before other programs; but where all cores\n"
      "compute, a hop waits for milliseconds, and a late beat looks like a dead node");
  command->add_option("--log-level", state->log_level, "debug, info, warning or error")
      ->capture_default_str();
  command->add_flag("--allow-fault-injection", options.allow_fault_injection,
                    "Let clients break stages on purpose (tests and demonstrations)");
  command->footer(
      "The daemons go on when this command or the terminal ends; \"troupe down\" ends them.\n\n"
      "Examples:\n  troupe up smollm2-135m\n  troupe up --nodes 3 smollm2-135m\n"
      "  troupe up --nodes 2 --layer-split 0,20 --threads 2 ./model.gguf");
  command->callback([state, &exit_code] { exit_code = parse_and_up(*state); });
}

}  // namespace troupe::cli

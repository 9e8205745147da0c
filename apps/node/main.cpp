// trouped: the daemon of a Troupe node, its keeper, and its stage processes: one program, three
// ways to start it.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include <CLI/CLI.hpp>

#include "apps/node/config.h"
#include "apps/node/keeper.h"
#include "apps/node/process_launcher.h"
#include "apps/node/runtime.h"
#include "base/log.h"
#include "base/time_slice.h"
#include "base/version.h"

namespace troupe {
namespace {

struct CommandLine {
  std::string config;
  std::vector<std::string> settings;  // "key=value"
  std::string log_level;
  bool keep = false;
  bool allow_fault_injection = false;
  bool check = false;
  std::string stage_process;  // "node-2/stage-1"
  int64_t parent = 0;         // of a stage process, or of a kept daemon: who must outlive it
};

// The first reason to end, told through an event descriptor that the main thread polls with the
// signals.
class EndSignal {
 public:
  EndSignal() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EndSignal() { ::close(fd_); }
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

  void raise(EndReason reason, std::string why) {
    {
      const std::lock_guard lock(mutex_);
      if (raised_) return;
      raised_ = true;
      reason_ = reason;
      why_ = std::move(why);
    }
    const uint64_t one = 1;
    (void)!::write(fd_, &one, sizeof one);
  }
  int fd() const { return fd_; }
  EndReason reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  int fd_;
  std::mutex mutex_;
  bool raised_ = false;
  EndReason reason_ = EndReason::kStopped;
  std::string why_;
};

// Told on standard error; in the log, too, if that is a file that was opened already.
int fail(int code, const Error& error, bool logged = false) {
  std::fprintf(stderr, "trouped: %s\n", error.message.c_str());
  if (logged) log_error("trouped", "{}", error.message);
  return code;
}

Result<NodeConfig> configuration(const CommandLine& line) {
  std::vector<ConfigOverride> overrides;
  for (const std::string& setting : line.settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos)
      return Error{ErrorCode::kInvalidArgument,
                   "--set " + setting + ": expected KEY=VALUE, for example node.id=node-1"};
    overrides.push_back({setting.substr(0, equals), setting.substr(equals + 1)});
  }
  if (!line.log_level.empty()) overrides.push_back({"log.level", line.log_level});
  if (line.allow_fault_injection) overrides.push_back({"faults.allow_injection", "true"});
  return load_config(line.config, overrides);
}

// What a stage process needs to read the configuration that this daemon reads.
std::vector<std::string> stage_arguments(const CommandLine& line) {
  std::vector<std::string> arguments{"--config", line.config};
  for (const std::string& setting : line.settings) {
    arguments.push_back("--set");
    arguments.push_back(setting);
  }
  if (!line.log_level.empty()) arguments.insert(arguments.end(), {"--log-level", line.log_level});
  if (line.allow_fault_injection) arguments.push_back("--allow-fault-injection");
  return arguments;
}

// Blocked in every thread, read by the main thread only.
int block_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

void wait_for_the_end(int signals, EndSignal& end) {
  for (;;) {
    pollfd sources[2] = {{signals, POLLIN, 0}, {end.fd(), POLLIN, 0}};
    if (::poll(sources, 2, -1) < 0) continue;
    if (sources[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    if (info.ssi_signo == SIGHUP) continue;  // nothing to read again yet
    end.raise(EndReason::kStopped, "signal " + std::to_string(info.ssi_signo));
    return;
  }
}

int exit_code(EndReason reason) {
  switch (reason) {
    case EndReason::kStopped:
      return kExitStopped;
    case EndReason::kEvicted:
      return kExitRejoin;
    case EndReason::kFailed:
      return kExitFailed;
  }
  return kExitFailed;
}

int run_node(const CommandLine& line, const NodeConfig& config, const std::string& program) {
  const int signals = block_signals();
  allow_realtime(config.node.realtime);
  (void)set_time_slice(kMessageSlice);  // threads inherit it; compute threads take their own
  const bool is_stage = !line.stage_process.empty();
  const auto logging = start_logging({.level = config.log.level,
                                      .file = config.log.file,
                                      .name = is_stage ? line.stage_process : config.node.id});
  if (!logging.ok()) return fail(kExitUnable, logging.error());
  if (config.transport.kind == TransportKind::kUcx) {
    const auto environment = set_ucx_environment(ucx_network(config.transport));
    if (!environment.ok()) return fail(kExitUsage, environment.error());
  }
  RuntimeOptions options;
  options.config = config;
  options.program = program;
  options.stage_arguments = stage_arguments(line);
  if (is_stage)
    options.stage =
        StageProcess{line.stage_process, {kStageMessagesFd, kStageBeatsFd}, kStageMemoryFd};
  EndSignal end;
  auto runtime = NodeRuntime::start(std::move(options), [&end](EndReason reason, std::string why) {
    end.raise(reason, std::move(why));
  });
  if (!runtime.ok()) return fail(kExitUnable, runtime.error(), !config.log.file.empty());
  if (!is_stage)
    log_info("trouped", "{} {} runs as process {}, peers at {}{}", kVersion, config.node.id,
             ::getpid(), runtime.value()->listen_address(),
             runtime.value()->rpc_address().empty()
                 ? ""
                 : ", clients at " + runtime.value()->rpc_address());
  wait_for_the_end(signals, end);
  log_info("trouped", "ending: {}", end.why());
  runtime.value()->stop();
  flush_logging();
  return exit_code(end.reason());
}

void describe(CLI::App& app, CommandLine& line) {
  app.add_option("--config", line.config, "Configuration file (YAML)")
      ->required()
      ->type_name("FILE");
  app.add_option("--set", line.settings,
                 "Override one setting of the file, for example deployment.threads=2")
      ->type_name("KEY=VALUE");
  app.add_option("--log-level", line.log_level, "debug, info, warning, error or off");
  app.add_flag("--keep", line.keep,
               "Start the daemon again when it dies, as a service manager would");
  app.add_flag("--allow-fault-injection", line.allow_fault_injection,
               "Let clients break stages on purpose (tests and demonstrations)");
  app.add_flag("--check", line.check, "Read the configuration, say what is wrong with it, and end");
  app.add_option("--stage-process", line.stage_process, "Internal: run one stage for a daemon")
      ->group("");
  app.add_option("--parent", line.parent, "Internal: end with this process")->group("");
  app.set_version_flag("--version", std::string("trouped ") + kVersion);
  app.footer(
      "Signals: SIGTERM and SIGINT end in order; running streams get limits.drain_deadline to "
      "finish.\n"
      "         SIGUSR2 to the --keep process ends the daemon in order and starts it again, from "
      "its "
      "file as it is then: an upgrade.\n"
      "Exit codes: 0 ended in order, 1 could not start, 2 wrong command line or configuration,\n"
      "            70 a vital part failed, 75 evicted from the cluster: start again.");
}

int run(int argc, char** argv) {
  CLI::App app{"trouped, the daemon of a Troupe node"};
  CommandLine line;
  describe(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitStopped : kExitUsage;
  }
  // A stage process must not outlive its daemon, nor a kept daemon its keeper, however they end:
  // also if that was before this line.
  if (line.parent != 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != line.parent) return kExitStopped;
  }

  const auto config = configuration(line);
  if (!config.ok()) return fail(kExitUsage, config.error());
  if (line.check) {
    std::printf("%s: the configuration is fine\n", line.config.c_str());
    return kExitStopped;
  }
  char program[4096];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return fail(kExitUnable, Error{ErrorCode::kIo, "/proc/self/exe is unreadable"});
  program[length] = '\0';
  if (line.keep) {
    std::vector<std::string> arguments = stage_arguments(line);
    arguments.insert(arguments.end(), {"--parent", std::to_string(::getpid())});
    return keep(program, arguments);
  }
  return run_node(line, config.value(), program);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  // UCX reads its settings when its library is loaded: run again with them in the environment if
  // need be.
  const auto environment = troupe::enter_ucx_environment({}, argv);
  if (!environment.ok()) {
    std::fprintf(stderr, "trouped: %s\n", environment.error().message.c_str());
    return troupe::kExitUnable;
  }
  return troupe::run(argc, argv);
}

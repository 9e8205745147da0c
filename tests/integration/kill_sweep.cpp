// The promise, tried: a cluster of three daemons and three stages answers; at a chosen token one of
// its processes is killed (kill -9) or a stage actor is made to throw; the answer must be the
// undisturbed one, to the last bit of every logit. One run for every target and position.
//
//   kill_sweep --model FILE [--positions 10] [--tokens 40] [--targets daemon,stage,throw] [--json
//   FILE] [--verbose]
//
// Exit code: 0 all equal and nothing left behind, 1 otherwise, 77 if there is no model.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/prng.h"
#include "tests/integration/sweep.h"
#include "tests/support/answer.h"
#include "tests/support/cluster.h"
#include "tests/support/skip.h"

namespace troupe::test {
namespace {

struct Options {
  std::string model;
  uint32_t positions = 10, tokens = 40;
  std::vector<std::string> targets{"daemon", "stage", "throw"};
  std::string json;
  bool verbose = false;
};

struct Target {
  std::string kind;  // "daemon", "stage", "throw"
  uint32_t index;    // of the node (from 0) or of the stage
  std::string name() const {
    return kind == "daemon" ? fmt::format("daemon node-{}", index + 1)
                            : fmt::format("{} stage {}", kind, index);
  }
};

struct Run {
  Target target;
  uint32_t position = 0;
  std::string failure;  // empty: equal
  double pause_ms = 0;  // the longest silence between two tokens
  uint32_t resumptions = 0;
};

Result<int> process_of(const ClusterStatus& status, const Target& target) {
  if (target.kind == "daemon") {
    for (const NodeStatus& node : status.nodes)
      if (node.id == fmt::format("node-{}", target.index + 1))
        return static_cast<int>(node.process);
  } else {
    for (const StageStatus& stage : status.deployments.front().stages)
      if (stage.index == target.index) return static_cast<int>(stage.process);
  }
  return Error{ErrorCode::kNotFound, target.name()};
}

bool spread_over_all(const ClusterStatus& status, size_t nodes) {
  std::vector<std::string> used;
  for (const StageStatus& stage : status.deployments.front().stages) used.push_back(stage.node);
  std::ranges::sort(used);
  return static_cast<size_t>(std::ranges::unique(used).begin() - used.begin()) == nodes;
}

class Sweep {
 public:
  explicit Sweep(Options options) : options_(std::move(options)) {}

  Result<void> prepare() {
    TROUPE_TRY_VOID(fresh());
    TROUPE_TRY(reference_, ask(*client_, story_request("undisturbed", options_.tokens, 7), {}));
    return {};
  }

  Run one(const Target& target, uint32_t position) {
    Run run{target, position, {}};
    const auto done = attempt(target, position, run);
    if (!done.ok()) run.failure = to_string(done.error());
    if (!run.failure.empty() && options_.verbose && cluster_)
      std::fputs(cluster_->logs().c_str(), stderr);
    return run;
  }

  Result<void> finish() {
    client_ = nullptr;
    operator_ = nullptr;
    const std::unique_ptr<Cluster> cluster = std::move(cluster_);
    return cluster ? cluster->down() : Result<void>();
  }

 private:
  Result<void> fresh() {
    TROUPE_TRY_VOID(finish());
    TROUPE_TRY(cluster_, Cluster::start({.model = options_.model,
                                         .nodes = 3,
                                         .stages = 3,
                                         .up_arguments = {"--allow-fault-injection"}}));
    TROUPE_TRY(client_, cluster_->client());
    TROUPE_TRY(operator_, cluster_->client());
    runs_of_cluster_ = 0;
    return {};
  }

  Result<void> attempt(const Target& target, uint32_t position, Run& run) {
    Result<ClusterStatus> status = Error{ErrorCode::kUnavailable, "no cluster"};
    if (client_) status = cluster_->wait_until_whole(*client_, 3, 30s);
    // After some losses stages sit together: begin again, so that every target means what its name
    // says. Keepers and supervisors also give up after many deaths in a short time, as they should.
    if (!status.ok() || !spread_over_all(status.value(), 3) || runs_of_cluster_ >= 3) {
      TROUPE_TRY_VOID(fresh());
      status = cluster_->wait_until_whole(*client_, 3, 30s);
      if (!status.ok()) return status.error();
    }
    ++runs_of_cluster_;
    TROUPE_TRY(const int process, process_of(status.value(), target));
    const std::string id = fmt::format("run-{}", to_hex(random_u64()));
    std::optional<Error> fault;
    Pause pause;
    TROUPE_TRY(
        const Answer answer,
        ask(
            *client_, story_request(id, options_.tokens, 7),
            [&](uint64_t index) {
              if (index != position) return;
              if (target.kind != "throw") {
                ::kill(process, SIGKILL);
                return;
              }
              const auto injected = operator_->inject_fault({"", target.index, FaultKind::kThrow});
              if (!injected.ok()) fault = injected.error();
            },
            &pause));
    run.pause_ms = to_milliseconds(pause.longest);
    run.resumptions = pause.resumptions;
    if (fault) return *fault;
    TROUPE_TRY_VOID(compare(reference_, answer));
    return {};
  }

  Options options_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Client> client_, operator_;
  Answer reference_;
  uint32_t runs_of_cluster_ = 0;
};

std::vector<Target> targets_of(const Options& options) {
  std::vector<Target> targets;
  for (const std::string& kind : options.targets)
    for (uint32_t index = 0; index < 3; ++index) targets.push_back({kind, index});
  return targets;
}

nlohmann::json report(const Options& options, const std::vector<Run>& runs, size_t different) {
  std::vector<double> pauses;
  for (const Run& run : runs) pauses.push_back(run.pause_ms);
  nlohmann::json json{{"model", options.model.substr(options.model.rfind('/') + 1)},
                      {"tokens", options.tokens},
                      {"runs", runs.size()},
                      {"different", different},
                      {"pause_ms", quantiles(pauses)}};
  for (const Run& run : runs)
    json["each"].push_back({{"target", run.target.name()},
                            {"position", run.position},
                            {"equal", run.failure.empty()},
                            {"failure", run.failure},
                            {"pause_ms", run.pause_ms},
                            {"resumptions", run.resumptions}});
  return json;
}

int sweep(const Options& options) {
  Sweep sweep(options);
  const auto prepared = sweep.prepare();
  if (!prepared.ok()) {
    std::fprintf(stderr, "kill_sweep: %s\n", to_string(prepared.error()).c_str());
    return 1;
  }
  std::vector<Run> runs;
  size_t different = 0;
  for (const Target& target : targets_of(options)) {
    for (uint32_t i = 0; i < options.positions; ++i) {
      const uint32_t position = (2 * i + 1) * options.tokens / (2 * options.positions);
      runs.push_back(sweep.one(target, position));
      const Run& run = runs.back();
      if (!run.failure.empty()) ++different;
      std::printf("%-16s token %3u  %s  longest pause %7.1f ms%s\n", run.target.name().c_str(),
                  position, run.failure.empty() ? "equal" : "DIFFERENT", run.pause_ms,
                  run.failure.empty() ? "" : ("  " + run.failure).c_str());
      std::fflush(stdout);
    }
  }
  const auto ended = sweep.finish();
  if (!ended.ok()) std::fprintf(stderr, "kill_sweep: %s\n", to_string(ended.error()).c_str());
  const auto json = report(options, runs, different);
  std::printf("%zu runs, %zu different, longest pause p50 %.1f ms, max %.1f ms\n", runs.size(),
              different, json["pause_ms"]["p50"].get<double>(),
              json["pause_ms"]["max"].get<double>());
  if (!options.json.empty()) std::ofstream(options.json) << json.dump(2) << '\n';
  return different == 0 && ended.ok() ? 0 : 1;
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  CLI::App app{"Kills every process of a cluster at every so many tokens and compares the answers"};
  troupe::test::Options options;
  app.add_option("--model", options.model, "GGUF file; default: TROUPE_SMOLLM2");
  app.add_option("--positions", options.positions, "Token positions per target");
  app.add_option("--tokens", options.tokens, "Tokens of an answer");
  app.add_option("--targets", options.targets, "daemon, stage, throw")->delimiter(',');
  app.add_option("--json", options.json, "Write the report here");
  app.add_flag("--verbose", options.verbose, "Show the nodes' logs of a run that failed");
  CLI11_PARSE(app, argc, argv);
  if (options.model.empty())
    if (const char* model = std::getenv("TROUPE_SMOLLM2")) options.model = model;
  if (options.model.empty())
    troupe::test::skip_all(
        "no model: give --model, or set TROUPE_SMOLLM2 (troupe pull smollm2-135m)");
  return troupe::test::sweep(options);
}

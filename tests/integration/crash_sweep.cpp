// Where a crash hits a frame on its way: a cluster of four daemons and four stages answers; at a
// chosen token a stage's process is killed, frozen or made to fail at a named point of a frame's
// way through it (actors/dataplane/fault_points.h). Every stream must be the undisturbed one, to
// the last bit of every logit.
//
//   crash_sweep [--kinds kill,stop] [--phases …] [--positions 8] [--standby kv] [--streams 1]
//               [--sample 40 --seed 1] [--json FILE]
//
// Exit code: 0 all equal and nothing left behind, 1 otherwise, 77 if there is no model.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/prng.h"
#include "tests/support/answer.h"
#include "tests/support/cluster.h"
#include "tests/support/skip.h"

namespace troupe::test {
namespace {

constexpr uint32_t kStages = 4;

struct Options {
  std::string model, standby = "none", json;
  std::vector<std::string> kinds{"kill", "stop"};
  std::vector<std::string> phases{"arrive", "accept", "compute", "computed", "sent"};
  uint32_t positions = 8, tokens = 64, streams = 1, sample = 0, seed = 1;
  bool verbose = false;
};

struct Point {
  std::string kind, phase;
  uint32_t stage = 0, position = 0;
  std::string fault() const { return kind + "@" + phase; }
};

// Milliseconds from the fault on; negative: the cluster's events do not tell.
struct Split {
  double detection = -1, swap = -1, replay = -1;
};

struct Run {
  Point point;
  std::string failure;            // empty: all streams equal
  std::vector<double> pauses_ms;  // the longest silence of each stream
  Split split;
};

int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Sweep {
 public:
  explicit Sweep(Options options) : options_(std::move(options)) {}

  Result<void> prepare() {
    TROUPE_TRY_VOID(fresh());
    for (uint32_t stream = 0; stream < options_.streams; ++stream) {
      TROUPE_TRY(Answer answer, ask(*clients_[stream], request(stream)));
      references_.push_back(std::move(answer));
    }
    return {};
  }

  Run one(const Point& point) {
    Run run{point, {}, {}, {}};
    const auto done = attempt(point, run);
    if (done.ok()) return run;
    run.failure = to_string(done.error());
    if (options_.verbose && cluster_) std::fputs(cluster_->logs().c_str(), stderr);
    clients_.clear();  // the next point gets a cluster of its own
    return run;
  }

  Result<void> finish() {
    clients_.clear();
    operator_ = nullptr;
    const std::unique_ptr<Cluster> cluster = std::move(cluster_);
    return cluster ? cluster->down() : Result<void>();
  }

 private:
  GenerateRequest request(uint32_t stream) const {
    return story_request("run-" + to_hex(random_u64()), options_.tokens, 7 + stream);
  }

  Result<void> fresh() {
    TROUPE_TRY_VOID(finish());
    TROUPE_TRY(cluster_, Cluster::start({.model = options_.model,
                                         .nodes = kStages,
                                         .stages = kStages,
                                         .up_arguments = {"--allow-fault-injection", "--standby",
                                                          options_.standby}}));
    for (uint32_t stream = 0; stream < options_.streams; ++stream) {
      TROUPE_TRY(auto client, cluster_->client());
      clients_.push_back(std::move(client));
    }
    TROUPE_TRY(operator_, cluster_->client());
    return wait_until_well();
  }

  // Serving, on all nodes, and every stage with its standby if there shall be one.
  Result<void> wait_until_well() {
    const Instant deadline = steady_now() + 30s;
    TROUPE_TRY(ClusterStatus status, cluster_->wait_until_whole(*operator_, kStages, 30s));
    const auto lacks = [&] {
      return options_.standby != "none" &&
             std::ranges::any_of(status.deployments.front().stages,
                                 [](const StageStatus& stage) { return stage.standby.empty(); });
    };
    while (lacks()) {
      if (steady_now() > deadline)
        return Error{ErrorCode::kDeadlineExceeded, "a stage stays without a standby"};
      std::this_thread::sleep_for(20ms);
      TROUPE_TRY(status, operator_->status());
    }
    return {};
  }

  Result<void> attempt(const Point& point, Run& run) {
    if (clients_.empty()) TROUPE_TRY_VOID(fresh());
    TROUPE_TRY_VOID(wait_until_well());
    std::atomic<int64_t> armed_at{0};
    std::vector<Result<Answer>> answers(options_.streams, Error{ErrorCode::kInternal, "not run"});
    std::vector<Pause> pauses(options_.streams);
    std::optional<Error> refused;
    std::vector<std::thread> threads;
    for (uint32_t stream = 0; stream < options_.streams; ++stream)
      threads.emplace_back([&, stream] {
        const auto at = [&](uint64_t index) {
          if (stream != 0 || index != point.position) return;
          armed_at = unix_ms();
          for (Pause& pause : pauses) pause.from = steady_now();
          const auto armed =
              operator_->inject_fault({.model = "", .stage = point.stage, .text = point.fault()});
          if (!armed.ok()) refused = armed.error();
        };
        answers[stream] = ask(*clients_[stream], request(stream), at, &pauses[stream]);
      });
    for (std::thread& thread : threads) thread.join();
    if (refused) return *refused;
    for (uint32_t stream = 0; stream < options_.streams; ++stream) {
      if (!answers[stream].ok()) return answers[stream].error();
      TROUPE_TRY_VOID(compare(references_[stream], answers[stream].value()));
      run.pauses_ms.push_back(to_milliseconds(pauses[stream].longest));
    }
    return split_pause(armed_at, run);
  }

  // From the head's events, whose clock is ours.
  Result<void> split_pause(int64_t armed_at, Run& run) {
    TROUPE_TRY(const ClusterStatus status, operator_->status());
    int64_t lost_at = 0, served_at = 0;
    for (const ClusterEvent& event : status.events) {
      if (event.unix_ms < armed_at) continue;
      const bool lost = event.text.find("was killed by") != std::string::npos ||
                        event.text.find("failed:") != std::string::npos;
      if (lost && lost_at == 0) lost_at = event.unix_ms;
      if (lost_at != 0 && served_at == 0 && event.text.find(" serves: ") != std::string::npos)
        served_at = event.unix_ms;
    }
    if (lost_at == 0)
      return Error{ErrorCode::kInternal, "the fault did not strike: no stage was lost"};
    run.split.detection = static_cast<double>(lost_at - armed_at);
    if (served_at == 0) return {};
    run.split.swap = static_cast<double>(served_at - lost_at);
    const double longest = *std::ranges::max_element(run.pauses_ms);
    run.split.replay = std::max(0.0, longest - run.split.detection - run.split.swap);
    return {};
  }

  Options options_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<Client> operator_;
  std::vector<Answer> references_;
};

// Neighbouring points hit different stages, so that no supervisor's patience is tried.
std::vector<Point> points_of(const Options& options) {
  std::vector<Point> points;
  for (const std::string& kind : options.kinds)
    for (const std::string& phase : options.phases)
      for (uint32_t i = 0; i < options.positions; ++i)
        for (uint32_t stage = 0; stage < kStages; ++stage)
          points.push_back(
              {kind, phase, stage, (2 * i + 1) * (options.tokens - 8) / (2 * options.positions)});
  if (options.sample == 0 || options.sample >= points.size()) return points;
  std::mt19937 random(options.seed);
  std::ranges::shuffle(points, random);
  points.resize(options.sample);
  std::vector<Point> spread;
  for (uint32_t turn = 0; spread.size() < points.size(); ++turn)
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      uint32_t seen = 0;
      for (const Point& point : points)
        if (point.stage == stage && seen++ == turn) spread.push_back(point);
    }
  return spread;
}

nlohmann::json quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  return {{"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}, {"max", values.back()}};
}

nlohmann::json report(const Options& options, const std::vector<Run>& runs) {
  nlohmann::json json{{"standby", options.standby},
                      {"streams", options.streams},
                      {"tokens", options.tokens},
                      {"runs", runs.size()}};
  size_t different = 0;
  for (const std::string& kind : options.kinds) {
    std::vector<double> pauses, detection, swap, replay;
    for (const Run& run : runs) {
      if (run.point.kind != kind) continue;
      different += run.failure.empty() ? 0 : 1;
      pauses.insert(pauses.end(), run.pauses_ms.begin(), run.pauses_ms.end());
      if (run.split.swap < 0) continue;
      detection.push_back(run.split.detection);
      swap.push_back(run.split.swap);
      replay.push_back(run.split.replay);
    }
    json["kinds"][kind] = {{"pause_ms", quantiles(pauses)},
                           {"detection_ms", quantiles(detection)},
                           {"swap_ms", quantiles(swap)},
                           {"replay_ms", quantiles(replay)}};
  }
  json["different"] = different;
  for (const Run& run : runs)
    json["each"].push_back({{"fault", run.point.fault()},
                            {"stage", run.point.stage},
                            {"position", run.point.position},
                            {"failure", run.failure},
                            {"pauses_ms", run.pauses_ms}});
  return json;
}

int sweep(const Options& options) {
  Sweep sweep(options);
  const auto prepared = sweep.prepare();
  if (!prepared.ok()) {
    std::fprintf(stderr, "crash_sweep: %s\n", to_string(prepared.error()).c_str());
    return 1;
  }
  std::vector<Run> runs;
  for (const Point& point : points_of(options)) {
    runs.push_back(sweep.one(point));
    const Run& run = runs.back();
    const double longest = run.pauses_ms.empty() ? 0 : *std::ranges::max_element(run.pauses_ms);
    std::printf("%-14s stage %u  token %3u  %s  %7.1f ms%s\n", point.fault().c_str(), point.stage,
                point.position, run.failure.empty() ? "equal" : "DIFFERENT", longest,
                run.failure.empty() ? "" : ("  " + run.failure).c_str());
    std::fflush(stdout);
  }
  const auto ended = sweep.finish();
  if (!ended.ok()) std::fprintf(stderr, "crash_sweep: %s\n", to_string(ended.error()).c_str());
  const auto json = report(options, runs);
  for (const auto& [kind, figures] : json["kinds"].items())
    std::printf("%s: pause ms %s, detection %s, swap %s, replay %s\n", kind.c_str(),
                figures["pause_ms"].dump().c_str(), figures["detection_ms"].dump().c_str(),
                figures["swap_ms"].dump().c_str(), figures["replay_ms"].dump().c_str());
  std::printf("%zu runs, %zu different\n", runs.size(), json["different"].get<size_t>());
  if (!options.json.empty()) std::ofstream(options.json) << json.dump(2) << '\n';
  return json["different"] == 0 && ended.ok() ? 0 : 1;
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  CLI::App app{"Crashes stages at every step of a frame's way and compares the answers"};
  troupe::test::Options options;
  app.add_option("--model", options.model, "GGUF file; default: TROUPE_SMOLLM2");
  app.add_option("--kinds", options.kinds, "kill, stop, throw, hang")->delimiter(',');
  app.add_option("--phases", options.phases, "arrive, accept, compute, computed, sent")
      ->delimiter(',');
  app.add_option("--positions", options.positions, "Token positions of each stage and phase");
  app.add_option("--tokens", options.tokens, "Tokens of an answer");
  app.add_option("--streams", options.streams, "Answers at once")->check(CLI::Range(1, 64));
  app.add_option("--standby", options.standby, "none or kv");
  app.add_option("--sample", options.sample, "Only so many points, drawn by chance");
  app.add_option("--seed", options.seed, "Of the sample");
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

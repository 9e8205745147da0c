// A cluster under load while things break at random moments (a Poisson process): stages, nodes, the
// head, the network, and several of them at once. Every answer must be the undisturbed one, to the
// last bit of every logit; and in the end, when all is well again, nothing may have grown: memory,
// threads, descriptors, KV blocks.
//
//   soak [--minutes 10] [--per-minute 10] [--faults kill,stop,zone,…] [--streams 8]
//        [--standby kv] [--seed 1] [--json FILE] [--logs FOLDER]
//
// Exit code: 0 if so, 1 otherwise, 77 if there is no model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>

#include "tests/integration/sweep_faults.h"
#include "tests/integration/sweep_report.h"
#include "tests/integration/sweep_scenes.h"
#include "tests/integration/sweep_usage.h"

namespace troupe::test {
namespace {

struct Options : SweepOptions {
  double minutes = 10, per_minute = 10, warm_up_seconds = 20;
  std::vector<std::string> faults{};
};

constexpr const char* kPhases[] = {"arrive", "accept", "compute", "computed", "sent"};
constexpr const char* kKinds[] = {"kill",   "stop", "throw",   "hang",  "daemon",
                                  "zombie", "cut",  "cut-out", "cut-in"};
constexpr Duration kHeldMax = 5s;
constexpr size_t kFailuresKept = 20;

// Answers without end, one stream a client.
class Load {
 public:
  explicit Load(SweepCluster& cluster) : cluster_(cluster) {
    for (uint32_t stream = 0; stream < cluster.streams(); ++stream)
      threads_.emplace_back([this, stream] {
        while (!stopping_) ask_once(stream);
      });
  }
  ~Load() { stop(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Those that run come to their end.
  void stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Behind stop().
  const Tally& tally() const { return tally_; }
  const std::vector<std::string>& failures() const { return failures_; }
  const std::vector<double>& silences_ms() const { return silences_ms_; }
  size_t bad() {
    const std::lock_guard lock(mutex_);
    return failures_.size();
  }

 private:
  void ask_once(uint32_t stream) {
    Heard heard;
    const GenerateRequest request = cluster_.request(stream);
    const auto answer =
        ask(cluster_.client(stream), request, [&heard](uint64_t index) { heard.token(index); });
    const Judgement judgement = judge(cluster_.reference(stream), heard, answer);
    const std::lock_guard lock(mutex_);
    ++tally_[judgement.verdict];
    silences_ms_.push_back(to_milliseconds(longest_silence(heard, {}).length));
    if (judgement.verdict == Verdict::kEqual || failures_.size() >= kFailuresKept) return;
    failures_.push_back(
        fmt::format("{} {}: {}", request.id, to_string(judgement.verdict), judgement.why));
    std::printf("BAD %s\n", failures_.back().c_str());
  }

  SweepCluster& cluster_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  Tally tally_;
  std::vector<std::string> failures_;
  std::vector<double> silences_ms_;
  std::vector<std::thread> threads_;
};

std::vector<std::string> possible_faults(const Options& options, bool network) {
  std::vector<std::string> names;
  for (const char* kind : kKinds)
    if (network || !needs_network(kind)) names.emplace_back(kind);
  for (const SceneTraits& scene : scenes())
    if ((!scene.standby || options.cluster.standby != "none") && (!scene.network || network))
      names.emplace_back(scene.name);
  return names;
}

Scene make_fault(const std::string& name, SweepCluster& cluster, PrivateNetwork* network,
                 std::mt19937& random) {
  const KindTraits* kind = find_kind(name);
  if (kind == nullptr) return make_scene(name, cluster, network, random);
  const std::string phase = kPhases[random() % std::size(kPhases)];
  const auto stage = static_cast<uint32_t>(random() % kSweepStages);
  const Point point{name, phase, stage, 0};
  return {std::make_unique<PointFault>(cluster, network, point),
          fmt::format("@{} stage {}", phase, stage)};
}

// One after the other: what overlaps is a scene of its own.
Result<void> break_once(SweepCluster& cluster, Disturbance& disturbance) {
  TROUPE_TRY(const ClusterStatus status, cluster.rpc().status());
  TROUPE_TRY_VOID(disturbance.aim(status));
  const auto strike = disturbance.strike();
  if (!strike.ok()) {
    (void)disturbance.release();
    return strike.error();
  }
  const Instant end = steady_now() + kHeldMax;
  Instant look{};
  bool held = disturbance.holds();
  while (held && steady_now() < end) {
    disturbance.tick(strike.value());
    std::this_thread::sleep_for(2ms);
    if (steady_now() < look) continue;
    look = steady_now() + 25ms;
    const auto now = cluster.rpc().status();
    held = !now.ok() || !served_again(now.value(), strike.value());
  }
  return disturbance.release();
}

struct Counts {
  std::map<std::string, size_t> struck, missed;  // by name; missed: its victim was not there
};

Counts break_things(const Options& options, SweepCluster& cluster, PrivateNetwork* network,
                    Load& load) {
  std::mt19937 random(options.seed);
  std::exponential_distribution<double> gap(options.per_minute / 60);
  const std::vector<std::string> names =
      options.faults.empty() ? possible_faults(options, network != nullptr) : options.faults;
  Counts counts;
  const Instant start = steady_now();
  double at = gap(random);
  for (; at < options.minutes * 60; at += gap(random)) {
    while (to_seconds(steady_now() - start) < at) std::this_thread::sleep_for(5ms);
    const std::string name = names[random() % names.size()];
    Scene fault = make_fault(name, cluster, network, random);
    const auto done = break_once(cluster, *fault.disturbance);
    ++(done.ok() ? counts.struck : counts.missed)[name];
    std::printf("%6.1f s  %s %s%s\n", to_seconds(steady_now() - start), name.c_str(),
                fault.drawn.c_str(), done.ok() ? "" : ("  " + to_string(done.error())).c_str());
    std::fflush(stdout);
    if (load.bad() >= kFailuresKept) break;
  }
  return counts;
}

std::string describe(const std::map<std::string, size_t>& counts) {
  std::string text;
  size_t sum = 0;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
    sum += count;
  }
  return fmt::format("{} ({})", sum, text);
}

void warm_up(const Options& options, SweepCluster& cluster) {
  Load load(cluster);
  const Instant end = steady_now() + std::chrono::milliseconds{
                                         static_cast<int64_t>(options.warm_up_seconds * 1000)};
  while (steady_now() < end) std::this_thread::sleep_for(20ms);
}

Result<bool> soak(const Options& options, PrivateNetwork* network, SweepCluster& cluster) {
  TROUPE_TRY_VOID(cluster.prepare());
  warm_up(options, cluster);
  TROUPE_TRY(const Usage before, usage_of(cluster));
  std::printf("before: %s\n", to_string(before).c_str());
  Load load(cluster);
  const Counts counts = break_things(options, cluster, network, load);
  load.stop();
  TROUPE_TRY(const ClusterStatus status, cluster.ready());
  TROUPE_TRY(const Usage after, usage_of(cluster));
  const std::string more = growth(before, after);
  std::printf("after:  %s\n", to_string(after).c_str());
  std::printf("struck: %s\n", describe(counts.struck).c_str());
  std::printf("missed: %s\n", describe(counts.missed).c_str());
  std::printf("view %lu, %lu faults survived by the last head\n", status.deployments.front().view,
              status.faults_survived);
  std::printf("answers: %s\n", to_json(load.tally()).dump().c_str());
  const nlohmann::json silences = quantiles(load.silences_ms());
  std::printf("longest silence of each, ms: %s\n", silences.dump().c_str());
  if (!more.empty()) std::printf("GROWN: %s\n", more.c_str());
  if (!options.json.empty())
    std::ofstream(options.json)
        << nlohmann::json{{"answers", to_json(load.tally())}, {"silence_ms", silences},
                          {"struck", counts.struck},          {"missed", counts.missed},
                          {"failures", load.failures()},      {"before", to_string(before)},
                          {"after", to_string(after)},        {"grown", more}}
               .dump(2)
        << '\n';
  return load.failures().empty() && more.empty() && !counts.struck.empty();
}

int run(const Options& options) {
  std::optional<PrivateNetwork> network = try_network();
  SweepCluster cluster(options.cluster);
  const auto good = soak(options, network ? &*network : nullptr, cluster);
  if (!good.ok()) std::fprintf(stderr, "soak: %s\n", to_string(good.error()).c_str());
  const bool well = good.ok() && good.value();
  if (!well && cluster.running() && !options.logs.empty()) {
    std::filesystem::create_directories(options.logs);
    std::ofstream(options.logs + "/soak.log") << cluster.cluster().logs();
  }
  const auto ended = cluster.end();
  if (!ended.ok()) std::fprintf(stderr, "soak: %s\n", to_string(ended.error()).c_str());
  return well && ended.ok() ? 0 : 1;
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  using namespace troupe::test;
  CLI::App app{"Breaks things at random while a cluster answers"};
  Options options;
  options.cluster.streams = 8;
  options.cluster.standby = "kv";
  add_sweep_options(app, options);
  app.add_option("--minutes", options.minutes, "Of breaking things")->check(CLI::Range(0.1, 1e5));
  app.add_option("--per-minute", options.per_minute, "Faults, on average")
      ->check(CLI::Range(0.1, 60.0));
  app.add_option("--warm-up", options.warm_up_seconds, "Seconds of load before it");
  app.add_option("--faults", options.faults,
                 "Kinds of crash_sweep and scenes of crash_scenes; default: all")
      ->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  const std::vector<std::string> known = possible_faults(options, true);
  for (const std::string& name : options.faults)
    if (std::ranges::find(known, name) == known.end()) {
      std::fprintf(stderr, "soak: no fault \"%s\"\n", name.c_str());
      return 1;
    }
  need_model(options);
  return run(options);
}

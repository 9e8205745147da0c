// Where a crash hits a frame on its way: a cluster of four daemons and four stages answers; when
// the client has seen a chosen token, the processes of one stage are killed, frozen, cut off or
// brought back from the dead (sweep_faults.h) at a named point of the next frame's way through the
// stage. Every stream must be the undisturbed one, to the last bit of every logit.
//
//   crash_sweep [--kinds kill,stop,…] [--phases …] [--positions 8] [--standby kv] [--streams 1]
//               [--sample 120 --seed 1 | --all] [--json FILE] [--logs FOLDER]
//   crash_sweep --control       with kernels whose bits depend on their batch, which recovery must
//                               never have: the same sweep must find differences
//
// Exit code: 0 all equal and nothing left behind (--control: some different), 1 otherwise, 77 if
// there is no model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/integration/sweep_faults.h"
#include "tests/integration/sweep_report.h"

namespace troupe::test {
namespace {

struct Options : SweepOptions {
  std::vector<std::string> kinds{"kill",   "stop", "throw",   "daemon",
                                 "zombie", "cut",  "cut-out", "cut-in"};
  std::vector<std::string> phases{"arrive", "accept", "compute", "computed", "sent", "sampled"};
  uint32_t positions = 8, sample = 0;
  bool all = false, control = false;
};

std::vector<Point> grid(const Options& options) {
  std::vector<Point> points;
  const uint32_t last = options.cluster.tokens - 8;
  for (const std::string& kind : options.kinds)
    for (const std::string& phase : options.phases)
      for (uint32_t i = 0; i < options.positions; ++i)
        for (uint32_t stage = 0; stage < kSweepStages; ++stage) {
          const Point point{kind, phase, stage, (2 * i + 1) * last / (2 * options.positions)};
          if (is_point(point)) points.push_back(point);
        }
  return points;
}

// Neighbouring points hit different stages, so that no supervisor's patience is tried.
std::vector<Point> points_of(const Options& options) {
  std::vector<Point> points = grid(options);
  if (options.sample == 0 || options.sample >= points.size()) return points;
  std::mt19937 random(options.seed);
  std::ranges::shuffle(points, random);
  points.resize(options.sample);
  std::vector<Point> spread;
  for (uint32_t turn = 0; spread.size() < points.size(); ++turn)
    for (uint32_t stage = 0; stage < kSweepStages; ++stage) {
      uint32_t seen = 0;
      for (const Point& point : points)
        if (point.stage == stage && seen++ == turn) spread.push_back(point);
    }
  return spread;
}

int sweep(const Options& options, PrivateNetwork* network) {
  SweepCluster cluster(options.cluster);
  const auto prepared = cluster.prepare();
  if (!prepared.ok()) {
    std::fprintf(stderr, "crash_sweep: %s\n", to_string(prepared.error()).c_str());
    return 1;
  }
  const std::vector<Point> points = points_of(options);
  Report report(options);
  for (const Point& point : points) {
    PointFault fault(cluster, network, point);
    report.add(point.kind,
               fmt::format("{} stage {} token {}", point.fault(), point.stage, point.position),
               run_disturbed(cluster, fault, point.position), points.size());
  }
  const int code = report.finish(cluster.end());
  if (!options.control) return code;
  // Wrong bits, and nothing worse: that would be another fault.
  Tally streams = report.streams();
  const size_t different = std::exchange(streams[Verdict::kDifferent], 0);
  streams.erase(Verdict::kEqual);
  const bool only = std::ranges::all_of(streams, [](const auto& one) { return one.second == 0; });
  std::printf("control: %zu streams differ, wanted are some\n", different);
  return different > 0 && only ? 0 : 1;
}

// What a machine cannot do is left out, and said; unless it was asked for by name.
int run(Options options, bool kinds_chosen) {
  std::optional<PrivateNetwork> network;
  if (std::ranges::any_of(options.kinds, needs_network)) {
    network = try_network();
    if (!network && kinds_chosen) return 77;
    if (!network) std::erase_if(options.kinds, needs_network);
  }
  return sweep(options, network ? &*network : nullptr);
}

void add_options(CLI::App& app, Options& options) {
  add_sweep_options(app, options);
  app.add_option("--kinds", options.kinds,
                 "Of kill, stop, throw, hang, daemon, zombie, cut, cut-out, cut-in")
      ->delimiter(',');
  app.add_option("--phases", options.phases, "Of arrive, accept, compute, computed, sent, sampled")
      ->delimiter(',');
  app.add_option("--positions", options.positions, "Token positions of each stage and phase");
  app.add_option("--sample", options.sample, "Only so many points, drawn by chance");
  app.add_flag("--all", options.all, "64 positions: 1,536 points of a kind like kill; hours");
  app.add_flag("--control", options.control, "Kernels whose bits depend on their batch");
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  using namespace troupe::test;
  CLI::App app{"Crashes stages at every step of a frame's way and compares the answers"};
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  if (options.all) {
    options.positions = 64;
    options.cluster.tokens = 72;
  }
  if (options.control) options.cluster.up_arguments = {"--set", "faults.split_k=true"};
  for (const std::string& kind : options.kinds)
    if (find_kind(kind) == nullptr) {
      std::fprintf(stderr, "crash_sweep: no kind \"%s\"\n", kind.c_str());
      return 1;
    }
  need_model(options);
  return run(options, app.count("--kinds") > 0);
}

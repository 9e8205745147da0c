// More than one thing goes wrong: pairs of deaths, deaths while a recovery runs, nodes that were
// thought dead and come back, all workers at once (sweep_scenes.h). Each scene is played several
// times, at places and moments drawn by chance; every stream must be the undisturbed one, to the
// last bit of every logit.
//
//   crash_scenes [--scenes adjacent,zone,…] [--rounds 5 --seed 1] [--standby kv] [--streams 4]
//   crash_scenes --poison      one request more kills the stage that computes it, on every node: it
//                              must be quarantined, and the others must not notice
//
// Exit code: 0 all equal and nothing left behind, 1 otherwise, 77 if there is no model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "tests/integration/sweep_report.h"
#include "tests/integration/sweep_scenes.h"

namespace troupe::test {
namespace {

struct Options : SweepOptions {
  std::vector<std::string> names{};
  uint32_t rounds = 5;
  bool poison = false;
};

std::vector<std::string> chosen(const Options& options, bool network) {
  if (!options.names.empty()) return options.names;
  std::vector<std::string> names;
  for (const SceneTraits& scene : scenes())
    if ((!scene.standby || options.cluster.standby != "none") && (!scene.network || network))
      names.emplace_back(scene.name);
  return names;
}

int play(const Options& options, const std::vector<std::string>& names, PrivateNetwork* network) {
  SweepCluster cluster(options.cluster);
  const auto prepared = cluster.prepare();
  if (!prepared.ok()) {
    std::fprintf(stderr, "crash_scenes: %s\n", to_string(prepared.error()).c_str());
    return 1;
  }
  std::mt19937 random(options.seed);
  Report report(options);
  for (uint32_t round = 0; round < options.rounds; ++round)
    for (const std::string& name : names) {
      const auto position = static_cast<uint32_t>(random() % (options.cluster.tokens - 8));
      const Scene scene = make_scene(name, cluster, network, random);
      report.add(name, fmt::format("{} {} token {}", name, scene.drawn, position),
                 run_disturbed(cluster, *scene.disturbance, position),
                 options.rounds * names.size());
    }
  return report.finish(cluster.end());
}

// Every stage in turn, each with a cluster of its own.
int poison(Options options) {
  int worst = 0;
  for (uint32_t stage = 0; stage < kSweepStages; ++stage) {
    std::printf("poison at stage %u\n", stage);
    options.cluster.up_arguments = {"--set", fmt::format("faults.poison_seed={}", kPoisonSeed),
                                    "--set", fmt::format("faults.poison_stage={}", stage)};
    worst = std::max(worst, play(options, {"poison"}, nullptr));
  }
  return worst;
}

int run(const Options& options) {
  for (const std::string& name : options.names)
    if (std::ranges::none_of(scenes(), [&](const auto& one) { return name == one.name; })) {
      std::fprintf(stderr, "crash_scenes: no scene \"%s\"\n", name.c_str());
      return 1;
    }
  if (options.poison) return poison(options);
  std::optional<PrivateNetwork> network = try_network();
  const auto needs = [](const std::string& name) { return name.starts_with("cut"); };
  if (!network && std::ranges::any_of(options.names, needs)) return 77;
  return play(options, chosen(options, network.has_value()), network ? &*network : nullptr);
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  using namespace troupe::test;
  CLI::App app{"Breaks more than one thing and compares the answers"};
  Options options;
  options.cluster.streams = 4;
  add_sweep_options(app, options);
  std::string help = "Of";
  for (const SceneTraits& scene : scenes()) help += fmt::format("\n{}: {}", scene.name, scene.what);
  app.add_option("--scenes", options.names, help)->delimiter(',');
  app.add_option("--rounds", options.rounds, "How often each is played");
  app.add_flag("--poison", options.poison, "A request that kills who computes it");
  CLI11_PARSE(app, argc, argv);
  need_model(options);
  return run(options);
}

// Simulated runs by the thousand: one line for each that fails, which repeats it, and a summary as
// JSON at the end.
//
//   simulate --seeds 1..2000 [--minutes M [--least N]] [--plant no-positions]
//   simulate --seed 42 [--faults "120 crash 2 100; 300 cut 1 hw 800"] -v
//
// Exit code: 0 if no run failed.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/time.h"
#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

struct Options {
  std::string seeds = "1..200", faults, plant = "none";
  uint64_t seed = 0;
  uint64_t least = 0;
  double minutes = 0;
  bool verbose = false, no_faults = false, check_held = false;
  RunOptions run() const;
};

std::optional<Plant> plant_of(const std::string& name) {
  if (name == to_string(Plant::kNone)) return Plant::kNone;
  for (const Plant plant : kPlants)
    if (name == to_string(plant)) return plant;
  return std::nullopt;
}

RunOptions Options::run() const {
  return {plant_of(plant).value_or(Plant::kNone), check_held};
}

// What repeats a failed run.
std::string repeat(const Options& options, uint64_t seed, const std::vector<Fault>& faults) {
  std::string line = fmt::format("simulate --seed {}", seed);
  if (options.plant != to_string(Plant::kNone)) line += " --plant " + options.plant;
  if (options.check_held) line += " --check-held";
  return line +
         (faults.empty() ? " --no-faults" : fmt::format(" --faults \"{}\"", to_text(faults)));
}

int run_one(const Options& options) {
  const auto faults = options.no_faults        ? std::vector<Fault>{}
                      : options.faults.empty() ? draw_faults(options.seed)
                                               : from_text(options.faults);
  const Outcome outcome = run_scenario(options.seed, faults, options.run());
  fmt::print("seed {} ({}): {}; {} tokens, {} views, {} micro-batches, over after {:.2f} s\n",
             options.seed, to_text(faults), outcome.failure.empty() ? "well" : outcome.failure,
             outcome.tokens, outcome.views, outcome.frames, outcome.recovered_s);
  return outcome.failure.empty() ? 0 : 1;
}

int run_all(const Options& options) {
  uint64_t first = 0, last = 0;
  if (std::sscanf(options.seeds.c_str(), "%lu..%lu", &first, &last) != 2 || first > last) {
    std::fprintf(stderr, "simulate: --seeds '%s'; expected FIRST..LAST\n", options.seeds.c_str());
    return 2;
  }
  const Instant begin = steady_now();
  const RunOptions run = options.run();
  uint64_t runs = 0, failed = 0, faults_drawn = 0;
  Outcome sum;
  for (uint64_t seed = first; seed <= last; ++seed) {
    if (options.minutes > 0 && runs >= options.least &&
        to_seconds(steady_now() - begin) > options.minutes * 60)
      break;
    const auto faults = draw_faults(seed);
    const Outcome outcome = run_scenario(seed, faults, run);
    ++runs;
    faults_drawn += faults.size();
    sum.tokens += outcome.tokens;
    sum.views += outcome.views;
    sum.faults_under_load += outcome.faults_under_load;
    sum.faults_under_recovery += outcome.faults_under_recovery;
    sum.frames += outcome.frames;
    sum.recovered_s = std::max(sum.recovered_s, outcome.recovered_s);
    if (outcome.failure.empty()) continue;
    ++failed;
    fmt::print("FAILED: {}\n  {} -v\n", outcome.failure,
               repeat(options, seed, shrink(seed, faults, run)));
    std::fflush(stdout);
  }
  fmt::print(
      "{{\"runs\": {}, \"failed\": {}, \"faults\": {}, \"faults_under_load\": {}, "
      "\"faults_under_recovery\": {}, \"tokens\": {}, "
      "\"views\": {}, "
      "\"micro_batches\": {}, \"longest_recovery_s\": {:.2f}, \"seconds\": {:.1f}}}\n",
      runs, failed, faults_drawn, sum.faults_under_load, sum.faults_under_recovery, sum.tokens,
      sum.views, sum.frames, sum.recovered_s, to_seconds(steady_now() - begin));
  return failed == 0 && runs > 0 ? 0 : 1;
}

}  // namespace
}  // namespace troupe::sim

int main(int argc, char** argv) {
  CLI::App app{"Simulates clusters that break, in virtual time"};
  troupe::sim::Options options;
  app.add_option("--seeds", options.seeds, "FIRST..LAST");
  app.add_option("--seed", options.seed, "Only this one");
  app.add_option("--faults", options.faults, "Instead of those that the seed draws");
  app.add_flag("--no-faults", options.no_faults, "With --seed: nothing breaks");
  app.add_option("--minutes", options.minutes, "Begin no further run after so long …");
  app.add_option("--least", options.least, "… unless there were fewer than so many");
  app.add_option("--plant", options.plant, "A bug that must be found (tests/sim/plant.h)");
  app.add_flag("--check-held", options.check_held, "No stage may hold a sequence at the end");
  app.add_flag("-v,--verbose", options.verbose, "With the cluster's log");
  CLI11_PARSE(app, argc, argv);
  if (!troupe::sim::plant_of(options.plant)) {
    std::fprintf(stderr, "simulate: --plant '%s': no such bug\n", options.plant.c_str());
    return 2;
  }
  (void)troupe::start_logging(
      {.level = options.verbose ? troupe::LogLevel::kDebug : troupe::LogLevel::kOff,
       .file = {},
       .name = "sim"});
  return options.seed != 0 ? troupe::sim::run_one(options) : troupe::sim::run_all(options);
}

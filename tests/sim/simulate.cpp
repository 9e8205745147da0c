// Simulated runs by the thousand: one line for each that fails, which repeats it.
//
//   simulate --seeds 1..2000 [--minutes M]
//   simulate --seed 42 [--faults "120 crash 2; 300 cut 1 800"] -v
//
// Exit code: 0 if no run failed.
#include <fmt/format.h>

#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/time.h"
#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

struct Options {
  std::string seeds = "1..200", faults;
  uint64_t seed = 0;
  double minutes = 0;
  std::string plant = "none";
  bool verbose = false;
  Plant planted() const {
    return plant == "batch-variant"   ? Plant::kBatchVariant
           : plant == "wrong-standby" ? Plant::kWrongStandby
                                      : Plant::kNone;
  }
};

int run_one(const Options& options) {
  const auto faults =
      options.faults.empty() ? draw_faults(options.seed) : from_text(options.faults);
  const Outcome outcome = run_scenario(options.seed, faults, options.planted());
  fmt::print("seed {} ({}): {}; {} tokens, {} faults survived, view {}\n", options.seed,
             to_text(faults), outcome.failure.empty() ? "well" : outcome.failure, outcome.tokens,
             outcome.faults_survived, outcome.views);
  return outcome.failure.empty() ? 0 : 1;
}

int run_all(const Options& options) {
  uint64_t first = 0, last = 0;
  if (std::sscanf(options.seeds.c_str(), "%lu..%lu", &first, &last) != 2 || first > last) {
    std::fprintf(stderr, "simulate: --seeds '%s'; expected FIRST..LAST\n", options.seeds.c_str());
    return 2;
  }
  const Instant begin = steady_now();
  uint64_t runs = 0, failed = 0, tokens = 0, survived = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    if (options.minutes > 0 && to_seconds(steady_now() - begin) > options.minutes * 60) break;
    const auto faults = draw_faults(seed);
    const Outcome outcome = run_scenario(seed, faults, options.planted());
    ++runs;
    tokens += outcome.tokens;
    survived += outcome.faults_survived;
    if (outcome.failure.empty()) continue;
    ++failed;
    fmt::print("FAILED: {}\n  simulate --seed {} --faults \"{}\" -v\n", outcome.failure, seed,
               to_text(shrink(seed, faults, options.planted())));
    std::fflush(stdout);
  }
  fmt::print("{} runs, {} failed, {} tokens, {} faults survived, {:.1f} s\n", runs, failed, tokens,
             survived, to_seconds(steady_now() - begin));
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
  app.add_option("--minutes", options.minutes, "Begin no further run after so long");
  app.add_option("--plant", options.plant, "A fault that must be found")
      ->check(CLI::IsMember({"none", "batch-variant", "wrong-standby"}));
  app.add_flag("-v,--verbose", options.verbose, "With the cluster's log");
  CLI11_PARSE(app, argc, argv);
  (void)troupe::start_logging(
      {.level = options.verbose ? troupe::LogLevel::kDebug : troupe::LogLevel::kOff,
       .file = {},
       .name = "sim"});
  return options.seed != 0 ? troupe::sim::run_one(options) : troupe::sim::run_all(options);
}

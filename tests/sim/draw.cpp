#include "tests/sim/draw.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/fake_stage.h"
#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

std::string draw_cut(Draw& draw) {
  if (draw.chance(40)) return "hwio";
  std::string what;
  for (const char part : {'h', 'w', 'i', 'o'})
    if (draw.chance(40)) what += part;
  return what.empty() ? "h" : what;
}

int64_t draw_leap(Draw& draw, uint64_t most_ms) {
  const auto by = static_cast<int64_t>(draw.between(1, most_ms));
  return draw.chance(50) ? by : -by;
}

std::string draw_fault(Draw& draw, const ClusterOptions& options, uint64_t kind) {
  const char* points[] = {"arrive", "accept", "compute", "computed", "sent"};
  const auto node = draw.below(options.nodes);
  const auto worker = 1 + draw.below(options.nodes - 1);
  const auto stage = draw.below(options.stages);
  switch (kind) {
    case 0:
      return fmt::format("crash {} {}", worker, draw.between(5, 1500));
    case 1:
      return fmt::format("crash 0 {}", draw.between(5, 1000));
    case 2:
      return fmt::format("pause {} {}", node, draw.between(20, draw.chance(20) ? 5000 : 2000));
    case 3:
      return fmt::format("slow {} {} {}", node, draw.between(2, 50), draw.between(100, 3000));
    case 4:
      return fmt::format("cut {} {} {}", worker, draw_cut(draw), draw.between(50, 2500));
    case 5:
      return fmt::format("throw {} {}+{}", stage, draw.of(points), draw.below(4));
    case 6:
      return fmt::format("stall {}", draw.between(10, 2000));
    case 7:
      return fmt::format("drain {}", worker);
    case 8:
      return fmt::format("move {} {}", stage, node);
    case 9:
      return fmt::format("standby {}", draw.below(3));
    case 10:
      return fmt::format("leave {} {}", draw.below(6), draw.between(1, 900));
    case 11:
      return "rival";
    case 12:
      return fmt::format("hang {}", stage);
    case 13:
      return fmt::format("away {}", draw.between(10, 2500));
    case 14:
      return fmt::format("doubt {}", draw.between(10, 2500));
    case 15:
      return fmt::format("leap {} {}", node, draw_leap(draw, 5000));
    case 16:
      return fmt::format("wall {} {}", node, draw_leap(draw, 100'000'000));
    case 17:
      // Always this one: whoever refused a stage is not asked for it again in this life, and
      // somebody must be left.
      return fmt::format("sick 1 {}", draw.between(50, 4000));
    default:
      return fmt::format("cancel {}", draw.below(6));
  }
}
constexpr uint64_t kKinds = 19;

}  // namespace

ClusterOptions draw_cluster(uint64_t seed) {
  Draw draw(seed * 31 + 5);
  ClusterOptions options;
  options.seed = seed;
  options.nodes = 2 + static_cast<uint32_t>(draw.below(4));
  options.stages = 1 + static_cast<uint32_t>(draw.below(4));
  options.standby = draw.of(kPolicies);
  const uint64_t journals[] = {0, 600, 1 << 20};  // none, too short, enough
  options.journal_bytes = draw.of(journals);
  const int steps_us[] = {100, 2000, 10'000};
  options.step = std::chrono::microseconds(draw.of(steps_us));
  const auto sometimes = [&](double most) {
    return draw.chance(40) ? most * static_cast<double>(draw.below(1000)) / 1000 : 0;
  };
  options.odds.lose = sometimes(0.01);
  options.odds.repeat = sometimes(0.05);
  options.odds.corrupt = sometimes(0.01);
  options.odds.delay = sometimes(0.2);
  options.odds.reorder = sometimes(0.1);
  return options;
}

std::vector<ClientPlan> draw_clients(uint64_t seed, const ClusterOptions& options,
                                     uint32_t vocabulary) {
  Draw draw(seed * 57 + 11);
  std::vector<ClientPlan> plans(2 + draw.below(5));
  for (size_t i = 0; i < plans.size(); ++i) {
    ClientPlan& plan = plans[i];
    plan.call.id = fmt::format("request-{}", i);
    const uint64_t prompt = 1 + draw.below(60);
    for (uint64_t t = 0; t < prompt; ++t)
      plan.call.prompt_tokens.push_back(static_cast<uint32_t>(draw.below(vocabulary)));
    plan.call.max_tokens = 5 + static_cast<uint32_t>(draw.below(80));
    plan.call.sampling = {.temperature = 0.5F, .top_p = 1, .seed = draw.below(1000)};
    plan.call.ignore_end = true;
    plan.start = std::chrono::milliseconds(draw.below(kFaultsMs));
    UndisturbedRun run = undisturbed_run(plan.call.prompt_tokens, plan.call.sampling.seed,
                                         plan.call.max_tokens, options.stages, vocabulary);
    plan.expected = std::move(run.tokens);
    plan.rows = std::move(run.rows);
  }
  return plans;
}

std::vector<Fault> draw_faults(uint64_t seed) {
  const ClusterOptions options = draw_cluster(seed);
  Draw draw(seed * 13 + 7);
  // Each run has its own preferences, so that runs differ in kind and not only in place.
  std::vector<uint64_t> weights(kKinds);
  for (uint64_t& weight : weights) weight = draw.chance(60) ? draw.between(1, 10) : 0;
  weights[0] += 2;
  std::discrete_distribution<uint64_t> kinds(weights.begin(), weights.end());
  std::mt19937_64 of_kind(seed * 17 + 3);
  std::vector<Fault> faults;
  const uint64_t count = draw.below(9);
  for (uint64_t i = 0; i < count; ++i) {
    // Every third one soon after another: a failure during recovery.
    const uint64_t at = !faults.empty() && draw.chance(35)
                            ? faults[draw.below(faults.size())].at_ms + draw.below(400)
                            : draw.below(kFaultsMs);
    std::string text = draw_fault(draw, options, kinds(of_kind));
    const char* steps[] = {"swap", "install", "replay", "feed"};
    if (draw.chance(15)) text = fmt::format("upon {} {}", draw.of(steps), text);
    faults.push_back({at, std::move(text)});
  }
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_ms < b.at_ms; });
  return faults;
}

}  // namespace troupe::sim

// Every interleaving of messages and failures of a small cluster, by the real logic.
//
//   model_check                          3 stages, 2 requests of 3 tokens, 2 failures of all kinds
//   model_check --failures 1 --all-orders
//   model_check --stages 2 --requests 1 --failures 1 --standbys
//   model_check --plant no-view-check --expect I2
//
// Exit code: 0 if every state was looked at and nothing is wrong (with --expect: if that is what
// was found); 1 if something is wrong; 2 if a bound cut the search off.
#include <fmt/format.h>

#include <map>

#include <CLI/CLI.hpp>

#include "tests/model/search.h"

namespace troupe::model {
namespace {

const std::map<std::string, Plant> kPlants{{"none", Plant::kNone},
                                           {"no-view-check", Plant::kNoViewCheck},
                                           {"journal-freed-at-send", Plant::kJournalFreedAtSend},
                                           {"watermark-before-apply", Plant::kWatermarkBeforeApply},
                                           {"claims-all", Plant::kClaimsAll},
                                           {"lost-news", Plant::kLostNews}};

int report(const SearchResult& result, const std::string& expected) {
  fmt::print("{} states, {} steps, {} ends, depth {}, {:.1f} s\n", result.states, result.steps,
             result.ends, result.depth, result.seconds);
  for (const auto& [left, states] : result.by_failures_left)
    fmt::print("  {} states with {} failures left\n", states, left);
  if (!result.violation.empty()) {
    fmt::print("VIOLATION: {}\n", result.violation);
    for (size_t i = 0; i < result.trace.size(); ++i)
      fmt::print("{:4} {}\n", i + 1, result.trace[i]);
    const bool wanted = !expected.empty() && result.violation.find(expected) != std::string::npos;
    return wanted ? 0 : 1;
  }
  if (!result.complete) {
    fmt::print("CUT OFF: a bound ended the search before all states were looked at\n");
    return 2;
  }
  if (!expected.empty()) {
    fmt::print("the planted fault was not found\n");
    return 1;
  }
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app{"Looks at every state of a small cluster that fails"};
  SearchOptions options;
  Bounds& bounds = options.bounds;
  std::string expected, failing;
  app.add_option("--stages", bounds.stages)->check(CLI::Range(1, 8));
  app.add_option("--requests", bounds.requests)->check(CLI::Range(1, 8));
  app.add_option("--prompt", bounds.prompt, "Tokens of a prompt")->check(CLI::Range(1, 500));
  app.add_option("--tokens", bounds.tokens, "Tokens of a request")->check(CLI::Range(1, 16));
  app.add_option("--nodes", bounds.nodes)->check(CLI::Range(1, 9));
  app.add_option("--failures", bounds.failures, "At most so many")->check(CLI::Range(0, 5));
  app.add_option("--kinds", failing,
                 "Which may happen, of restart,kept,loss,zombie,frame; default: all");
  app.add_flag("--standbys", bounds.standbys, "Every stage has one");
  app.add_option("--journal-rows", bounds.journal_rows, "0: no journals");
  app.add_flag("--all-orders", options.all_orders, "Also those that are known to come to the same");
  app.add_flag("--from-nothing", options.from_nothing, "Placing and loading, too");
  app.add_option("--plant", bounds.plant, "A fault that must be found")
      ->transform(CLI::CheckedTransformer(kPlants));
  app.add_option("--expect", expected, "Part of the violation that must be found");
  app.add_option("--states-max", options.states_max, "Give up beyond; exit code 2");
  app.add_option("--seconds-max", options.seconds_max, "Give up beyond; exit code 2");
  CLI11_PARSE(app, argc, argv);
  if (!failing.empty()) {
    const auto named = [&](const char* kind) { return failing.find(kind) != std::string::npos; };
    bounds.restarts = named("restart");
    bounds.kept = named("kept");
    bounds.losses = named("loss");
    bounds.zombies = named("zombie");
    bounds.lost_frames = named("frame");
  }
  return report(search(options), expected);
}

}  // namespace
}  // namespace troupe::model

int main(int argc, char** argv) {
  return troupe::model::run(argc, argv);
}

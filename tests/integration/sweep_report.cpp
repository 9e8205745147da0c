#include "tests/integration/sweep_report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/skip.h"

namespace troupe::test {
namespace {

nlohmann::json figures_of(const std::vector<const Outcome*>& outcomes) {
  std::vector<double> pauses, detection, swap, replay, refill;
  Tally streams;
  size_t bad = 0;
  for (const Outcome* outcome : outcomes) {
    pauses.insert(pauses.end(), outcome->pauses_ms.begin(), outcome->pauses_ms.end());
    for (const auto& [verdict, count] : outcome->streams) streams[verdict] += count;
    bad += outcome->failure.empty() ? 0 : 1;
    if (!outcome->split) continue;
    detection.push_back(outcome->split->detection);
    swap.push_back(outcome->split->swap);
    replay.push_back(outcome->split->replay);
    refill.push_back(outcome->split->refill);
  }
  return {{"runs", outcomes.size()},
          {"bad", bad},
          {"streams", to_json(streams)},
          {"pause_ms", quantiles(pauses)},
          {"detection_ms", quantiles(detection)},
          {"swap_ms", quantiles(swap)},
          {"replay_ms", quantiles(replay)},
          {"refill_ms", quantiles(refill)}};
}

void print_figures(const std::string& name, const nlohmann::json& figures) {
  const auto range = [&](const char* what) {
    const nlohmann::json& values = figures[what];
    if (values.is_null()) return std::string("-");
    return fmt::format("{:.0f} / {:.0f} / {:.0f}", values["p50"].get<double>(),
                       values["p99"].get<double>(), values["max"].get<double>());
  };
  std::printf(
      "%-20s %4zu runs, %zu bad; p50 / p99 / max ms: silence %s; detection %s, swap %s, replay %s, "
      "refill %s\n",
      name.c_str(), figures["runs"].get<size_t>(), figures["bad"].get<size_t>(),
      range("pause_ms").c_str(), range("detection_ms").c_str(), range("swap_ms").c_str(),
      range("replay_ms").c_str(), range("refill_ms").c_str());
}

}  // namespace

void add_sweep_options(CLI::App& app, SweepOptions& options) {
  app.add_option("--model", options.cluster.model, "GGUF file; default: TROUPE_SMOLLM2");
  app.add_option("--tokens", options.cluster.tokens, "Tokens of an answer")
      ->check(CLI::Range(16, 512));
  app.add_option("--streams", options.cluster.streams, "Answers at once")->check(CLI::Range(1, 32));
  app.add_option("--standby", options.cluster.standby, "Policy of the deployment: none, kv");
  app.add_option("--seed", options.seed, "Of everything that is drawn");
  app.add_option("--json", options.json, "Write the report here");
  app.add_option("--logs", options.logs, "Keep the nodes' logs of a run that failed here");
}

void need_model(SweepOptions& options) {
  if (options.cluster.model.empty())
    if (const char* model = std::getenv("TROUPE_SMOLLM2")) options.cluster.model = model;
  if (options.cluster.model.empty())
    skip_all("no model: give --model, or set TROUPE_SMOLLM2 (troupe pull smollm2-135m)");
}

std::optional<PrivateNetwork> try_network() {
  auto network = PrivateNetwork::enter();
  if (network.ok()) return std::move(network).value();
  std::fprintf(stderr, "NO CUTS HERE: %s\n", to_string(network.error()).c_str());
  return std::nullopt;
}

void Report::add(const std::string& group, const std::string& what, Outcome outcome, size_t of) {
  runs_.push_back({group, what, std::move(outcome)});
  Outcome& added = runs_.back().outcome;
  const double longest = added.pauses_ms.empty() ? 0 : *std::ranges::max_element(added.pauses_ms);
  std::printf("%4zu/%zu %-44s %-5s %7.1f ms", runs_.size(), of, what.c_str(),
              added.failure.empty() ? "equal" : "BAD", longest);
  if (added.split)
    std::printf(" (%.0f + %.0f + %.0f + %.0f)", added.split->detection, added.split->swap,
                added.split->replay, added.split->refill);
  std::printf("%s%s\n", added.failure.empty() ? "" : "  ", added.failure.c_str());
  std::fflush(stdout);
  const std::string logs = std::exchange(added.logs, {});
  if (logs.empty() || options_.logs.empty()) return;
  std::filesystem::create_directories(options_.logs);
  std::string name = what;
  std::ranges::replace(name, ' ', '-');
  std::ofstream(fmt::format("{}/{}-{}.log", options_.logs, runs_.size(), name))
      << added.failure << '\n'
      << logs;
}

size_t Report::bad() const {
  return static_cast<size_t>(
      std::ranges::count_if(runs_, [](const Run& run) { return !run.outcome.failure.empty(); }));
}

Tally Report::streams() const {
  Tally sum;
  for (const Run& run : runs_)
    for (const auto& [verdict, count] : run.outcome.streams) sum[verdict] += count;
  return sum;
}

nlohmann::json Report::json() const {
  nlohmann::json json{{"standby", options_.cluster.standby},
                      {"streams", options_.cluster.streams},
                      {"tokens", options_.cluster.tokens},
                      {"seed", options_.seed}};
  std::vector<const Outcome*> all;
  std::map<std::string, std::vector<const Outcome*>> groups;
  for (const Run& run : runs_) {
    all.push_back(&run.outcome);
    groups[run.group].push_back(&run.outcome);
    nlohmann::json each{{"what", run.what},
                        {"failure", run.outcome.failure},
                        {"streams", to_json(run.outcome.streams)},
                        {"pauses_ms", run.outcome.pauses_ms}};
    if (const auto& split = run.outcome.split)
      each["split_ms"] = {split->detection, split->swap, split->replay, split->refill};
    json["each"].push_back(std::move(each));
  }
  json["all"] = figures_of(all);
  for (const auto& [group, outcomes] : groups) json["groups"][group] = figures_of(outcomes);
  return json;
}

int Report::finish(const Result<void>& ended) const {
  if (!ended.ok()) std::fprintf(stderr, "%s\n", to_string(ended.error()).c_str());
  const nlohmann::json report = json();
  if (report.contains("groups"))
    for (const auto& [group, figures] : report["groups"].items()) print_figures(group, figures);
  print_figures("all", report["all"]);
  std::printf("streams: %s\n", report["all"]["streams"].dump().c_str());
  if (!options_.json.empty()) std::ofstream(options_.json) << report.dump(2) << '\n';
  return bad() == 0 && ended.ok() ? 0 : 1;
}

}  // namespace troupe::test

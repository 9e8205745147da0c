#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli/bench.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

// The smallest value that at least this share of all does not exceed; zero of nothing.
Duration quantile(std::vector<Duration> values, double share) {
  if (values.empty()) return Duration{0};
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::vector<StageLoad> loads_of(const std::vector<ClusterStatus>& looks) {
  std::vector<StageLoad> loads;
  if (looks.empty() || looks.back().deployments.empty()) return loads;
  for (const StageStatus& last : looks.back().deployments.front().stages) {
    StageLoad load{.last = last, .busy_fraction = 0};
    size_t seen = 0;
    for (const ClusterStatus& look : looks) {
      if (look.deployments.empty() || look.deployments.front().stages.size() <= last.index)
        continue;
      load.busy_fraction += look.deployments.front().stages[last.index].busy_fraction;
      ++seen;
    }
    if (seen > 0) load.busy_fraction /= static_cast<double>(seen);
    loads.push_back(load);
  }
  return loads;
}

double ms(Duration duration) {
  return to_milliseconds(duration);
}

}  // namespace

BenchFigures figures_of(const std::vector<StreamRecord>& records, size_t streams,
                        const std::vector<ClusterStatus>& looks) {
  BenchFigures figures;
  figures.streams = streams;
  figures.requests = records.size();
  figures.stages = loads_of(looks);
  Instant begin = Instant::max(), end = Instant::min();
  std::vector<Duration> first, between;
  double rates = 0;
  size_t rated = 0;
  for (const StreamRecord& record : records) {
    begin = std::min(begin, record.begin);
    end = std::max(end, record.end);
    if (!record.error.empty()) {
      ++figures.failed;
      if (figures.first_error.empty()) figures.first_error = record.error;
      continue;
    }
    figures.prompt_tokens += record.prompt_tokens;
    figures.generated_tokens += record.tokens.size();
    if (record.tokens.empty()) continue;
    first.push_back(record.tokens.front() - record.begin);
    for (size_t i = 1; i < record.tokens.size(); ++i)
      between.push_back(record.tokens[i] - record.tokens[i - 1]);
    const double decoding = to_seconds(record.tokens.back() - record.tokens.front());
    if (decoding > 0) {
      rates += static_cast<double>(record.tokens.size() - 1) / decoding;
      ++rated;
    }
  }
  if (!records.empty()) figures.wall = end - begin;
  if (figures.wall > Duration{0})
    figures.tokens_per_second =
        static_cast<double>(figures.generated_tokens) / to_seconds(figures.wall);
  if (rated > 0) figures.stream_tokens_per_second = rates / static_cast<double>(rated);
  figures.first_token_p50 = quantile(first, 0.5);
  figures.first_token_p99 = quantile(first, 0.99);
  figures.token_p50 = quantile(between, 0.5);
  figures.token_p99 = quantile(between, 0.99);
  return figures;
}

std::string bench_text(const BenchFigures& figures) {
  std::string text =
      fmt::format("{} requests in {} streams, {} prompt tokens, {} tokens generated in {}\n\n",
                  figures.requests, figures.streams, figures.prompt_tokens,
                  figures.generated_tokens, human_duration(figures.wall));
  Table table({{"", false}, {"", true}});
  table.add({{"all streams"}, {fmt::format("{:.1f} tokens/s", figures.tokens_per_second)}});
  table.add(
      {{"one stream, mean"}, {fmt::format("{:.1f} tokens/s", figures.stream_tokens_per_second)}});
  const auto pair = [](Duration p50, Duration p99) {
    return fmt::format("{} / {}", human_duration(p50), human_duration(p99));
  };
  table.add({{"first token, p50 / p99"}, {pair(figures.first_token_p50, figures.first_token_p99)}});
  table.add({{"next token, p50 / p99"}, {pair(figures.token_p50, figures.token_p99)}});
  text += table.text("  ");
  if (!figures.stages.empty()) {
    Table stages({{"stage", true},
                  {"node"},
                  {"layers", true},
                  {"busy", true},
                  {"idle", true},
                  {"step p50 / p99", true},
                  {"hop p50 / p99", true}});
    for (const StageLoad& load : figures.stages)
      stages.add({{std::to_string(load.last.index)},
                  {printable(load.last.node)},
                  {std::to_string(load.last.layer_last - load.last.layer_first)},
                  {fmt::format("{:.0f} %", load.busy_fraction * 100)},
                  {fmt::format("{:.0f} %", (1 - load.busy_fraction) * 100)},
                  {fmt::format("{:.2f} / {:.2f} ms", load.last.step_p50_ms, load.last.step_p99_ms)},
                  {fmt::format("{:.2f} / {:.2f} ms", load.last.hop_p50_ms, load.last.hop_p99_ms)}});
    text += "\n";
    text += stages.text("  ");
  }
  if (figures.failed > 0)
    text += fmt::format("\n{} of {} requests failed; the first: {}\n", figures.failed,
                        figures.requests, figures.first_error);
  return text;
}

nlohmann::ordered_json bench_json(const BenchFigures& figures) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageLoad& load : figures.stages)
    stages.push_back({{"index", load.last.index},
                      {"node", load.last.node},
                      {"layers", load.last.layer_last - load.last.layer_first},
                      {"busy_fraction", load.busy_fraction},
                      {"idle_fraction", 1 - load.busy_fraction},
                      {"step_p50_ms", load.last.step_p50_ms},
                      {"step_p99_ms", load.last.step_p99_ms},
                      {"hop_p50_ms", load.last.hop_p50_ms},
                      {"hop_p99_ms", load.last.hop_p99_ms}});
  return {{"streams", figures.streams},
          {"requests", figures.requests},
          {"failed", figures.failed},
          {"first_error", figures.first_error},
          {"prompt_tokens", figures.prompt_tokens},
          {"generated_tokens", figures.generated_tokens},
          {"wall_seconds", to_seconds(figures.wall)},
          {"tokens_per_second", figures.tokens_per_second},
          {"stream_tokens_per_second", figures.stream_tokens_per_second},
          {"first_token_p50_ms", ms(figures.first_token_p50)},
          {"first_token_p99_ms", ms(figures.first_token_p99)},
          {"token_p50_ms", ms(figures.token_p50)},
          {"token_p99_ms", ms(figures.token_p99)},
          {"stages", std::move(stages)}};
}

}  // namespace troupe::cli

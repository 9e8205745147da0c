// bench_model MODEL: how fast whole models run, as JSON. Stages run one after the other in one
// process, so a figure of several stages shows what cutting costs, not what it gains.
//   prefill   one prompt of --prompt tokens in micro-batches of --chunk rows
//   decode    --batch sequences, one row each a step
// Each figure is the best and the median of --repeats rounds; on a busy machine the best is the one
// to compare.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/pipeline.h"

namespace {

using namespace troupe;
using namespace troupe::test;
using Json = nlohmann::ordered_json;

struct Settings {
  std::string model;
  std::string kernels = "auto";
  std::vector<size_t> threads = {1, 2};
  std::vector<uint32_t> stages = {1}, batches = {1, 8};
  uint32_t prompt = 512, decode = 32, chunk = 256, repeats = 3;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

uint64_t status_bytes(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what)) return std::stoull(line.substr(line.find(':') + 1)) * 1024;
  return 0;
}

Json rates_of(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return {{"best", rates.back()}, {"median", rates[rates.size() / 2]}};
}

// `count` sequences with room for all their positions.
class Workload {
 public:
  Workload(Pipeline& pipeline, const Settings& settings)
      : pipeline_(pipeline), settings_(settings) {
    blocks_ = static_cast<uint32_t>((settings.prompt + settings.decode + kKvBlockTokens) /
                                    kKvBlockTokens);
  }

  static uint32_t blocks(const Settings& settings) {
    const uint32_t each = static_cast<uint32_t>(
        (settings.prompt + settings.decode + kKvBlockTokens) / kKvBlockTokens);
    return each * *std::max_element(settings.batches.begin(), settings.batches.end());
  }

  Result<double> prefill() {
    pipeline_.reset();
    const auto start = std::chrono::steady_clock::now();
    TROUPE_TRY_VOID(feed_prompt(0));
    return settings_.prompt / seconds_since(start);
  }

  Result<double> decode(uint32_t batch) {
    pipeline_.reset();
    for (uint32_t s = 0; s < batch; ++s) TROUPE_TRY_VOID(feed_prompt(s));
    const auto start = std::chrono::steady_clock::now();
    for (uint32_t t = 0; t < settings_.decode; ++t) {
      MicroBatch rows{.id = {1}, .segments = {}, .released = {}};
      for (uint32_t s = 0; s < batch; ++s)
        rows.segments.push_back(segment(s, settings_.prompt + t, 1, true));
      const std::vector<uint32_t> tokens(batch, token(t));
      TROUPE_TRY([[maybe_unused]] const StageOutput output, pipeline_.run(rows, tokens));
    }
    return batch * settings_.decode / seconds_since(start);
  }

 private:
  uint32_t token(uint32_t i) const { return (i * 7919 + 13) % pipeline_.config().vocabulary; }

  Segment segment(uint32_t sequence, uint32_t position, uint32_t rows, bool sample) const {
    std::vector<uint32_t> blocks(blocks_);
    for (uint32_t b = 0; b < blocks_; ++b) blocks[b] = sequence * blocks_ + b;
    return {.sequence = {uint64_t{sequence} + 1},
            .position = position,
            .rows = rows,
            .blocks = std::move(blocks),
            .sample = sample,
            .sampling = {}};
  }

  Result<void> feed_prompt(uint32_t sequence) {
    std::vector<uint32_t> tokens;
    for (uint32_t from = 0; from < settings_.prompt; from += settings_.chunk) {
      const uint32_t rows = std::min(settings_.chunk, settings_.prompt - from);
      tokens.clear();
      for (uint32_t r = 0; r < rows; ++r) tokens.push_back(token(from + r));
      MicroBatch batch{.id = {1}, .segments = {}, .released = {}};
      batch.segments.push_back(segment(sequence, from, rows, from + rows == settings_.prompt));
      TROUPE_TRY([[maybe_unused]] const StageOutput output, pipeline_.run(batch, tokens));
    }
    return {};
  }

  Pipeline& pipeline_;
  const Settings& settings_;
  uint32_t blocks_ = 0;
};

Result<Json> measure(const GgufFile& file, const Settings& settings, const BackendOptions& backend,
                     uint32_t stages) {
  const uint64_t before = status_bytes("VmRSS");
  TROUPE_TRY(Pipeline pipeline, Pipeline::make(file, {.stages = stages,
                                                      .backend = backend,
                                                      .kv_blocks = Workload::blocks(settings),
                                                      .rows_max = settings.chunk}));
  Workload workload(pipeline, settings);
  Json entry = {
      {"kernels", to_string(backend.kernels)}, {"threads", backend.threads}, {"stages", stages}};
  std::vector<double> rates;
  for (uint32_t repeat = 0; repeat < settings.repeats; ++repeat) {
    TROUPE_TRY(const double rate, workload.prefill());
    rates.push_back(rate);
  }
  entry["prefill_tokens_per_second"] = rates_of(rates);
  for (const uint32_t batch : settings.batches) {
    rates.clear();
    for (uint32_t repeat = 0; repeat < settings.repeats; ++repeat) {
      TROUPE_TRY(const double rate, workload.decode(batch));
      rates.push_back(rate);
    }
    entry["decode_tokens_per_second"]["batch " + std::to_string(batch)] = rates_of(rates);
  }
  StageMemory sum;
  for (size_t s = 0; s < pipeline.stages(); ++s) {
    const StageMemory memory = pipeline.stage(s).memory();
    sum.weight_bytes += memory.weight_bytes;
    sum.kv_bytes += memory.kv_bytes;
    sum.scratch_bytes += memory.scratch_bytes;
  }
  entry["memory"] = {{"file_bytes", file.bytes().size()},
                     {"weight_bytes", sum.weight_bytes},
                     {"kv_bytes", sum.kv_bytes},
                     {"scratch_bytes", sum.scratch_bytes},
                     {"resident_before_bytes", before},
                     {"resident_bytes", status_bytes("VmRSS")},
                     {"resident_peak_bytes", status_bytes("VmHWM")}};
  return entry;
}

Result<Json> run(const Settings& settings) {
  TROUPE_TRY(const KernelChoice kernels, parse_kernel_choice(settings.kernels));
  TROUPE_TRY(const GgufFile file, GgufFile::open(settings.model));
  Json results = {{"model", settings.model},
                  {"prompt", settings.prompt},
                  {"decode", settings.decode},
                  {"chunk", settings.chunk},
                  {"results", Json::array()}};
  for (const size_t threads : settings.threads)
    for (const uint32_t stages : settings.stages) {
      TROUPE_TRY(Json entry,
                 measure(file, settings, {.kernels = kernels, .threads = threads}, stages));
      results["results"].push_back(std::move(entry));
    }
  return results;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{"Prefill and decode speed of a model, and the memory it takes"};
  app.add_option("model", settings.model, "GGUF file")->required()->check(CLI::ExistingFile);
  app.add_option("--kernels", settings.kernels, "auto, avx2 or reference");
  app.add_option("--threads", settings.threads)->delimiter(',');
  app.add_option("--stages", settings.stages)->delimiter(',');
  app.add_option("--batches", settings.batches, "sequences in decode")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--prompt", settings.prompt)->check(CLI::Range(1, 100000));
  app.add_option("--decode", settings.decode)->check(CLI::Range(1, 100000));
  app.add_option("--chunk", settings.chunk)->check(CLI::Range(1, 8192));
  app.add_option("--repeats", settings.repeats)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const Result<Json> result = run(settings);
  if (!result.ok()) {
    std::fprintf(stderr, "bench_model: %s\n", to_string(result.error()).c_str());
    return 1;
  }
  std::printf("%s\n", result.value().dump(1).c_str());
  return 0;
}

// exactness_matrix MODEL: the whole matrix on a real model, 20 prompts x 64 tokens, bits compared.
// Prints a line a cell and writes JSON. With two busy cores it takes from minutes (AVX2 only) to
// hours (all reference cells): run it by hand; CTest runs a sample (smollm2_test.cpp).
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/exactness_cells.h"
#include "tests/support/real_model.h"

namespace {

using namespace troupe;
using namespace troupe::test;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string model, json;
  size_t prompts = 20;
  uint32_t tokens = 64;
  std::vector<std::string> kernels = {"avx2", "reference"};
  ExactnessAxes axes{{}, {1, 2}, {1, 2, 3, 6}, {1, 20}, {1, 7, 0}};
  bool reference_whole = false;
};

// Two reference cells that differ in every axis stand for all, unless all were asked for: they take
// hours, and differ from each other only in ways that the AVX2 cells show as well.
std::vector<ExactnessCell> chosen_cells(const Arguments& arguments) {
  std::vector<ExactnessCell> cells = all_cells(arguments.axes);
  if (arguments.reference_whole) return cells;
  const ExactnessAxes& axes = arguments.axes;
  std::erase_if(cells, [&](const ExactnessCell& cell) {
    if (cell.kernels != KernelChoice::kReference) return false;
    const bool first = cell.stages == axes.stages.front() && cell.batch == axes.batches.back() &&
                       cell.chunk == axes.chunks.back();
    const bool second = cell.stages == axes.stages.back() && cell.batch == axes.batches.front() &&
                        cell.chunk == axes.chunks.front();
    return !first && !second;
  });
  return cells;
}

Json describe(const ExactnessCell& cell) {
  return {{"kernels", troupe::to_string(cell.kernels)},
          {"threads", cell.threads},
          {"stages", cell.stages},
          {"batch", cell.batch},
          {"chunk", cell.chunk},
          {"split_k", cell.split_k}};
}

class Report {
 public:
  explicit Report(const Arguments& arguments) : arguments_(arguments) {
    json_ = {{"model", arguments.model},
             {"prompts", arguments.prompts},
             {"tokens", arguments.tokens},
             {"cells", Json::array()}};
  }

  // A cell should equal the first one, or, as a negative control, should not.
  void add(size_t index, size_t count, const ExactnessCell& cell, const std::string& difference,
           double seconds) {
    const bool good = difference.empty() != cell.split_k;
    (good ? passed_ : failed_) += 1;
    std::printf("[%zu/%zu] %-58s %6.1f s  %s\n", index, count, test::to_string(cell).c_str(),
                seconds, difference.empty() ? "same bits" : difference.c_str());
    std::fflush(stdout);
    Json entry = describe(cell);
    entry["seconds"] = seconds;
    entry["difference"] = difference;
    entry["as_expected"] = good;
    json_["cells"].push_back(std::move(entry));
  }

  int finish() {
    json_["passed"] = passed_;
    json_["failed"] = failed_;
    if (!arguments_.json.empty()) {
      std::ofstream out(arguments_.json);
      out << json_.dump(1) << '\n';
      if (!out.flush()) {
        std::fprintf(stderr, "%s: cannot be written\n", arguments_.json.c_str());
        return 1;
      }
    }
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 1 ? 0 : 1;
  }

 private:
  const Arguments& arguments_;
  Json json_;
  int passed_ = 0, failed_ = 0;
};

Result<int> run(Arguments arguments) {
  for (const std::string& name : arguments.kernels) {
    TROUPE_TRY(const KernelChoice kernels, parse_kernel_choice(name));
    arguments.axes.kernels.push_back(kernels);
  }
  TROUPE_TRY(const GgufFile file, GgufFile::open(arguments.model));
  TROUPE_TRY(std::vector<Prompt> prompts, chat_prompts(file));
  prompts.resize(std::min(prompts.size(), arguments.prompts));
  arguments.prompts = prompts.size();
  std::vector<ExactnessCell> cells = chosen_cells(arguments);
  // Last the negative control: a difference is wanted there.
  ExactnessCell control = cells.front();
  control.batch = arguments.axes.batches.back();
  control.split_k = true;
  cells.push_back(control);

  ExactnessRunner runner(file, std::move(prompts), arguments.tokens);
  Report report(arguments);
  std::vector<Generation> expected;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    TROUPE_TRY(std::vector<Generation> made, runner.run(cells[i]));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (expected.empty()) expected = made;
    report.add(i + 1, cells.size(), cells[i], first_difference(expected, made), seconds.count());
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{
      "Compares the bits of a model's answers over stages, batches, chunks, threads and kernels"};
  app.add_option("model", arguments.model, "GGUF file")->required()->check(CLI::ExistingFile);
  app.add_option("--prompts", arguments.prompts, "of tests/data/prompts.txt")
      ->check(CLI::Range(1, 1000));
  app.add_option("--tokens", arguments.tokens, "generated per prompt")->check(CLI::Range(1, 1000));
  app.add_option("--kernels", arguments.kernels, "avx2,reference")->delimiter(',');
  app.add_option("--threads", arguments.axes.threads)->delimiter(',');
  app.add_option("--stages", arguments.axes.stages)->delimiter(',');
  app.add_option("--batches", arguments.axes.batches, "sequences at once")->delimiter(',');
  app.add_option("--chunks", arguments.axes.chunks, "prefill rows; 0 is whole")->delimiter(',');
  app.add_flag("--reference-whole", arguments.reference_whole,
               "every cell with the reference kernels too");
  app.add_option("--json", arguments.json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  const Result<int> result = run(arguments);
  if (result.ok()) return result.value();
  std::fprintf(stderr, "exactness_matrix: %s\n", to_string(result.error()).c_str());
  return 1;
}

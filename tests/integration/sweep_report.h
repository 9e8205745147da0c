// What the sweeps tell: a line a run, and figures over all of them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/sweep_network.h"
#include "tests/integration/sweep_streams.h"

namespace CLI {
class App;
}

namespace troupe::test {

// What every sweep can be told.
struct SweepOptions {
  SweepClusterOptions cluster;
  std::string json, logs;
  uint32_t seed = 1;
};
void add_sweep_options(CLI::App& app, SweepOptions& options);
// The model from the environment if none was named; ends the program if there is none.
void need_model(SweepOptions& options);
// Says so on standard error if there can be none.
std::optional<PrivateNetwork> try_network();

class Report {
 public:
  explicit Report(SweepOptions options) : options_(std::move(options)) {}

  // `group`: what its figures are gathered under. Prints the line.
  void add(const std::string& group, const std::string& what, Outcome outcome, size_t of);
  // Prints the figures and writes the file. `ended`: what the end of the cluster said. The
  // program's exit code.
  int finish(const Result<void>& ended) const;
  size_t bad() const;
  Tally streams() const;

 private:
  struct Run {
    std::string group, what;
    Outcome outcome;
  };
  nlohmann::json json() const;

  SweepOptions options_;
  std::vector<Run> runs_;
};

}  // namespace troupe::test

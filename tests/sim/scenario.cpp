#include "tests/sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "tests/sim/cluster.h"
#include "tests/sim/fake_stage.h"

namespace troupe::sim {
namespace {

using test::RecordingSink;

constexpr uint64_t kFaultsMs = 4000;       // faults begin in this time
constexpr Duration kLiveness = 300s;       // everything must be over so long after they stopped
constexpr Duration kFaultWindow = 6000ms;  // then all is healed

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool chance(uint64_t percent) { return below(100) < percent; }

 private:
  std::mt19937_64 random_;
};

ClusterOptions draw_cluster(uint64_t seed) {
  Draw draw(seed * 31 + 5);
  ClusterOptions options;
  options.seed = seed;
  options.nodes = 2 + static_cast<uint32_t>(draw.below(4));
  options.stages = 1 + static_cast<uint32_t>(draw.below(4));
  options.standby = draw.chance(50) ? StandbyPolicy::kKv : StandbyPolicy::kNone;
  const uint64_t journals[] = {0, 600, 1 << 20};  // none, too short, enough
  options.journal_bytes = journals[draw.below(3)];
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

ClusterOptions planted(ClusterOptions options, Plant plant) {
  options.plant = plant;
  return options;
}

struct Request {
  GenerateCall call;
  Duration start{};
  std::vector<uint32_t> expected;
  std::vector<std::shared_ptr<RecordingSink>> sinks;  // it is left and taken up again
  std::vector<uint64_t> cursors;
};

std::vector<Request> draw_requests(uint64_t seed, const ClusterOptions& options,
                                   uint32_t vocabulary) {
  Draw draw(seed * 57 + 11);
  std::vector<Request> requests(2 + draw.below(5));
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.call.id = fmt::format("request-{}", i);
    const uint64_t prompt = 1 + draw.below(60);
    for (uint64_t t = 0; t < prompt; ++t)
      request.call.prompt_tokens.push_back(static_cast<uint32_t>(draw.below(vocabulary)));
    request.call.max_tokens = 5 + static_cast<uint32_t>(draw.below(60));
    request.call.sampling = {.temperature = 0.5F, .top_p = 1, .seed = draw.below(1000)};
    request.call.ignore_end = true;
    request.start = std::chrono::milliseconds(draw.below(kFaultsMs));
    request.expected = expected_tokens(request.call.prompt_tokens, request.call.sampling.seed,
                                       request.call.max_tokens, options.stages, vocabulary);
  }
  return requests;
}

// What one listener heard must be the log from its cursor on, without a hole or a repeat.
std::string check_sink(const Request& request, size_t which) {
  const RecordingSink& sink = *request.sinks[which];
  uint64_t next = request.cursors[which];
  for (const GeneratedPiece& piece : sink.pieces) {
    if (piece.index != next)
      return fmt::format("{}: listener {} got index {} after {}", request.call.id, which,
                         piece.index, next);
    if (next >= request.expected.size() || piece.token != request.expected[next])
      return fmt::format("{}: token {} is {}, expected {}", request.call.id, next, piece.token,
                         next < request.expected.size() ? request.expected[next] : 0);
    ++next;
  }
  return {};
}

std::string check(const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    for (size_t i = 0; i < request.sinks.size(); ++i)
      if (std::string wrong = check_sink(request, i); !wrong.empty()) return wrong;
    if (request.sinks.empty()) return request.call.id + ": never started";
    const RecordingSink& last = *request.sinks.back();
    if (last.ends.size() != 1)
      return fmt::format("{}: {} ends, {} of {} tokens", request.call.id, last.ends.size(),
                         request.cursors.back() + last.pieces.size(), request.expected.size());
    if (last.ends[0].reason != FinishReason::kLength)
      return fmt::format(
          "{}: ended with {}: {}", request.call.id, to_string(last.ends[0].reason),
          last.ends[0].error ? last.ends[0].error->message : std::string("no error"));
    if (request.cursors.back() + last.pieces.size() != request.expected.size())
      return fmt::format("{}: {} tokens, expected {}", request.call.id,
                         request.cursors.back() + last.pieces.size(), request.expected.size());
  }
  return {};
}

class Run {
 public:
  Run(uint64_t seed, const std::vector<Fault>& faults, Plant plant)
      : options_(planted(draw_cluster(seed), plant)),
        cluster_(options_),
        requests_(draw_requests(seed, options_, cluster_.vocabulary())) {
    // Requests are refused until it serves.
    cluster_.run(10s, [this] { return serves(); });
    for (Request& request : requests_)
      cluster_.after(request.start, [this, &request] { listen(request, 0); });
    for (const Fault& fault : faults)
      cluster_.after(std::chrono::milliseconds(fault.at_ms),
                     [this, text = fault.text] { strike(text); });
  }

  Outcome go() {
    Outcome outcome;
    cluster_.run(kFaultWindow, [] { return false; });
    cluster_.heal();
    const bool over = cluster_.run(kLiveness, [this] { return all_ended(); });
    outcome.failure = check(requests_);
    if (outcome.failure.empty() && !over) outcome.failure = "not over in time";
    // What is finished leaves nothing behind.
    cluster_.run(3s, [] { return false; });
    const ClusterStatus status = cluster_.status();
    if (status.deployments.empty()) {
      outcome.failure = "no status";
      return outcome;
    }
    const BatcherStatus& batcher = status.deployments[0].batcher;
    if (outcome.failure.empty() && (batcher.kv_blocks_used != 0 || batcher.requests_running != 0 ||
                                    batcher.requests_queued != 0))
      outcome.failure =
          fmt::format("left behind: {} blocks, {} running, {} queued", batcher.kv_blocks_used,
                      batcher.requests_running, batcher.requests_queued);
    outcome.tokens = batcher.tokens_generated;
    outcome.faults_survived = status.faults_survived;
    outcome.views = status.deployments[0].view;
    return outcome;
  }

 private:
  void listen(Request& request, uint64_t cursor) {
    request.sinks.push_back(std::make_shared<RecordingSink>());
    request.cursors.push_back(cursor);
    GenerateCall call = request.call;
    call.after = cursor;
    cluster_.generate(call, request.sinks.back());
  }

  bool serves() {
    const ClusterStatus status = cluster_.status();
    return !status.deployments.empty() && status.deployments[0].state == DeploymentState::kServing;
  }

  bool all_ended() const {
    return std::all_of(requests_.begin(), requests_.end(), [](const Request& request) {
      return !request.sinks.empty() && !request.sinks.back()->ends.empty();
    });
  }

  void strike(const std::string& text) {
    std::istringstream words(text);
    std::string what, where;
    uint32_t a = 0, b = 0;
    words >> what >> a;
    if (what == "crash") {
      cluster_.crash(a);
    } else if (what == "cut") {
      words >> b;
      cluster_.cut(a, true);
      cluster_.after(std::chrono::milliseconds(b), [this, a] { cluster_.cut(a, false); });
    } else if (what == "throw") {
      words >> where;
      cluster_.inject(a, "throw@" + where);
    } else if (what == "drain") {
      cluster_.operate(DrainCall{fmt::format("node-{}", a + 1), true});
      cluster_.after(2s, [this, a] {
        cluster_.operate(DrainCall{fmt::format("node-{}", a + 1), false});
      });
    } else if (what == "move") {
      words >> b;
      cluster_.operate(MoveCall{"", a, fmt::format("node-{}", b + 1)});
    } else if (what == "standby") {
      cluster_.operate(StandbyCall{"", a == 0 ? StandbyPolicy::kNone : StandbyPolicy::kKv});
    } else if (what == "leave" && a < requests_.size()) {
      Request& request = requests_[a];
      if (request.sinks.empty() || !request.sinks.back()->ends.empty()) return;
      cluster_.detach(request.call.id, request.sinks.back());
      const uint64_t cursor = request.cursors.back() + request.sinks.back()->pieces.size();
      cluster_.after(50ms, [this, &request, cursor] { listen(request, cursor); });
    }
  }

  const ClusterOptions options_;
  Cluster cluster_;
  std::vector<Request> requests_;
};

}  // namespace

std::vector<Fault> draw_faults(uint64_t seed) {
  const ClusterOptions options = draw_cluster(seed);
  Draw draw(seed * 13 + 7);
  std::vector<Fault> faults;
  const uint64_t count = draw.below(9);
  const char* points[] = {"arrive", "accept", "compute", "computed", "sent"};
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = draw.below(kFaultsMs);
    const auto node = 1 + draw.below(options.nodes - 1);
    const auto stage = draw.below(options.stages);
    std::string text;
    switch (draw.below(8)) {
      case 0:
      case 1:
        text = fmt::format("crash {}", node);
        break;
      case 2:
        text = fmt::format("cut {} {}", node, 50 + draw.below(1500));
        break;
      case 3:
        text = fmt::format("throw {} {}+{}", stage, points[draw.below(5)], draw.below(4));
        break;
      case 4:
        text = fmt::format("drain {}", node);
        break;
      case 5:
        text = fmt::format("move {} {}", stage, draw.below(options.nodes));
        break;
      case 6:
        text = fmt::format("standby {}", draw.below(2));
        break;
      default:
        text = fmt::format("leave {}", draw.below(6));
    }
    faults.push_back({at, text});
  }
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_ms < b.at_ms; });
  return faults;
}

Outcome run_scenario(uint64_t seed, const std::vector<Fault>& faults, Plant plant) {
  return Run(seed, faults, plant).go();
}

std::vector<Fault> shrink(uint64_t seed, std::vector<Fault> faults, Plant plant) {
  for (size_t i = faults.size(); i-- > 0;) {
    std::vector<Fault> fewer = faults;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (!run_scenario(seed, fewer, plant).failure.empty()) faults = std::move(fewer);
  }
  return faults;
}

std::string to_text(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults)
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", fault.at_ms, fault.text);
  return text;
}

std::vector<Fault> from_text(const std::string& text) {
  std::vector<Fault> faults;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    Fault fault;
    if (!(words >> fault.at_ms)) continue;
    std::getline(words >> std::ws, fault.text);
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace troupe::sim

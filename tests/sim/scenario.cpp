#include "tests/sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "tests/sim/client.h"
#include "tests/sim/cluster.h"
#include "tests/sim/draw.h"

namespace troupe::sim {
namespace {

constexpr Duration kLiveness = 60s;  // everything must be over so long after the faults stopped

ClusterOptions planted(ClusterOptions options, Plant plant) {
  options.plant = plant;
  return options;
}

class Run {
 public:
  Run(uint64_t seed, const std::vector<Fault>& faults, RunOptions run)
      : run_(run), options_(planted(draw_cluster(seed), run.plant)), cluster_(options_) {
    for (ClientPlan& plan : draw_clients(seed, options_, cluster_.vocabulary())) {
      clients_.push_back(std::make_shared<Client>(cluster_, std::move(plan)));
      clients_.back()->begin();
    }
    for (const Fault& fault : faults)
      cluster_.after(500ms + std::chrono::milliseconds(fault.at_ms),
                     [this, text = fault.text] { strike(text); });
  }

  Outcome go() {
    Outcome outcome;
    cluster_.run(kFaultWindow, [] { return false; });
    cluster_.heal();
    healed_ = true;
    const Instant healed = cluster_.now();
    const bool over = cluster_.run(kLiveness, [this] { return all_done(); });
    outcome.recovered_s = to_seconds(cluster_.now() - healed);
    outcome.failure = cluster_.witness()->first_broken();
    if (outcome.failure.empty() && !over) outcome.failure = "not over in time: " + who_waits();
    if (outcome.failure.empty()) outcome.failure = check_rest();
    for (const auto& client : clients_) outcome.tokens += client->cursor();
    outcome.faults_under_load = faults_under_load_;
    outcome.faults_under_recovery = faults_under_recovery_;
    outcome.replays = cluster_.witness()->replays();
    outcome.refusals = cluster_.witness()->refusals();
    outcome.views = cluster_.witness()->views();
    outcome.frames = cluster_.witness()->frames_computed();
    return outcome;
  }

 private:
  bool all_done() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->done(); });
  }

  std::string who_waits() const {
    std::string all;
    for (const auto& client : clients_)
      if (!client->done()) all += (all.empty() ? "" : "; ") + client->state();
    return all;
  }

  // What is finished leaves nothing behind, and the cluster serves.
  std::string check_rest() {
    // A request may be quarantined only if stages failed by themselves often enough.
    for (const auto& client : clients_)
      if (!client->quarantined().empty() && throws_ < 3) return client->quarantined();
    cluster_.run(5s, [] { return false; });
    const auto status = cluster_.status(10s);
    if (!cluster_.witness()->first_broken().empty()) return cluster_.witness()->first_broken();
    if (!status || status->deployments.empty()) return "no status";
    const DeploymentStatus& deployment = status->deployments[0];
    const BatcherStatus& batcher = deployment.batcher;
    if (batcher.kv_blocks_used != 0 || batcher.requests_running != 0 ||
        batcher.requests_queued != 0 || batcher.micro_batches_in_flight != 0)
      return fmt::format("left behind: {} blocks, {} running, {} queued, {} in flight",
                         batcher.kv_blocks_used, batcher.requests_running, batcher.requests_queued,
                         batcher.micro_batches_in_flight);
    const std::string held = cluster_.witness()->held_in_seats();
    if (run_.check_held && !held.empty()) return "left behind: " + held;
    if (deployment.state != DeploymentState::kServing)
      return fmt::format("it does not serve: {} {}", to_string(deployment.state),
                         deployment.detail);
    return {};
  }

  void later(uint64_t delay_ms, std::function<void()> action) {
    cluster_.after(std::chrono::milliseconds(delay_ms), std::move(action));
  }

  void strike(const std::string& text) {
    if (text.starts_with("upon ")) {
      const size_t end = text.find(' ', 5);
      if (end == std::string::npos) return;
      // Not in the middle of whoever does that.
      return cluster_.witness()->upon(text.substr(5, end - 5), [this, rest = text.substr(end + 1)] {
        later(0, [this, rest] { strike(rest); });
      });
    }
    if (healed_) return;
    if (cluster_.recovering()) ++faults_under_recovery_;
    if (std::any_of(clients_.begin(), clients_.end(),
                    [](const auto& client) { return client->running(); }))
      ++faults_under_load_;
    std::istringstream words(text);
    std::string what;
    words >> what;
    if (!strike_node(what, words) && !strike_stage(what, words)) strike_client(what, words);
  }

  bool strike_node(const std::string& what, std::istringstream& words) {
    uint32_t node = 0;
    uint64_t duration = 0;
    if (what == "rival") {
      cluster_.rival_swap();
      return true;
    }
    if (what == "stall") {
      words >> duration;
      cluster_.stall_ledger(true);
      later(duration, [this] { cluster_.stall_ledger(false); });
      return true;
    }
    if (what == "away" || what == "doubt") {
      words >> duration;
      cluster_.trouble_ledger({.away = what == "away", .doubt = what == "doubt"});
      later(duration, [this] { cluster_.trouble_ledger({}); });
      return true;
    }
    const char* others[] = {"crash", "pause", "slow", "cut", "leap", "wall", "sick"};
    if (std::find(std::begin(others), std::end(others), what) == std::end(others)) return false;
    words >> node;
    if (node >= cluster_.nodes()) return true;
    if (what == "leap" || what == "wall") {
      int64_t by = 0;
      words >> by;
      if (what == "leap")
        cluster_.leap(node, std::chrono::milliseconds(by));
      else
        cluster_.leap_wall(node, std::chrono::milliseconds(by));
    } else if (what == "sick") {
      words >> duration;
      cluster_.sicken(node, true);
      later(duration, [this, node] { cluster_.sicken(node, false); });
    } else if (what == "crash") {
      words >> duration;
      cluster_.crash(node, std::chrono::milliseconds(duration));
    } else if (what == "pause") {
      words >> duration;
      cluster_.pause(node, true);
      later(duration, [this, node] { cluster_.pause(node, false); });
    } else if (what == "slow") {
      uint32_t factor = 1;
      words >> factor >> duration;
      cluster_.slow(node, factor);
      later(duration, [this, node] { cluster_.slow(node, 1); });
    } else {
      std::string which;
      words >> which >> duration;
      const auto has = [&](char part) { return which.find(part) != std::string::npos; };
      cluster_.cut(node, {has('h'), has('w'), has('i'), has('o')});
      later(duration, [this, node] { cluster_.cut(node, {}); });
    }
    return true;
  }

  bool strike_stage(const std::string& what, std::istringstream& words) {
    uint32_t first = 0, second = 0;
    std::string where;
    if (what == "throw" && words >> first >> where) {
      ++throws_;
      cluster_.inject(first, "throw@" + where);
    } else if (what == "hang" && words >> first) {
      cluster_.hang(first);
    } else if (what == "drain" && words >> first) {
      const NodeId node = fmt::format("node-{}", first + 1);
      cluster_.operate(DrainCall{node, true});
      later(2000, [this, node] { cluster_.operate(DrainCall{node, false}); });
    } else if (what == "move" && words >> first >> second) {
      cluster_.operate(MoveCall{"", first, fmt::format("node-{}", second + 1)});
    } else if (what == "standby" && words >> first) {
      cluster_.operate(StandbyCall{"", kPolicies[first % std::size(kPolicies)]});
    } else {
      return false;
    }
    return true;
  }

  void strike_client(const std::string& what, std::istringstream& words) {
    uint32_t which = 0;
    uint64_t away = 0;
    words >> which >> away;
    if (which >= clients_.size()) return;
    if (what == "leave") clients_[which]->leave(std::chrono::milliseconds(away));
    if (what == "cancel") clients_[which]->cancel();
  }

  const RunOptions run_;
  const ClusterOptions options_;
  Cluster cluster_;
  std::vector<std::shared_ptr<Client>> clients_;
  uint32_t throws_ = 0;
  bool healed_ = false;
  uint64_t faults_under_load_ = 0, faults_under_recovery_ = 0;
};

}  // namespace

Outcome run_scenario(uint64_t seed, const std::vector<Fault>& faults, RunOptions options) {
  return Run(seed, faults, options).go();
}

std::vector<Fault> shrink(uint64_t seed, std::vector<Fault> faults, RunOptions options) {
  // Until none can be left out: one may be needless only when another has gone.
  for (bool shorter = true; std::exchange(shorter, false);)
    for (size_t i = faults.size(); i-- > 0;) {
      std::vector<Fault> fewer = faults;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (run_scenario(seed, fewer, options).failure.empty()) continue;
      faults = std::move(fewer);
      shorter = true;
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

#include "tests/integration/sweep_scenes.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "tests/integration/sweep_faults.h"

namespace troupe::test {
namespace {

constexpr Duration kAway = 3s;             // how long a node is frozen or cut off
constexpr uint32_t kSecondWithinMs = 400;  // of the first death
constexpr Duration kSuccessorMax = 5s;
constexpr Duration kUpgradeMax = 60s;  // of all nodes

// False: what it is about is not there yet, and it shall be tried again.
using Act = std::function<Result<bool>()>;

struct Step {
  Duration after{};  // the strike
  Act act;
};

class Steps : public Disturbance {
 public:
  Steps(SweepCluster& cluster, PrivateNetwork* network) : cluster_(cluster), network_(network) {}
  ~Steps() override {
    thaw(frozen);
    if (network_ != nullptr) (void)network_->heal();
  }

  // `plan` is called when it is known who is where; the first of its steps is the strike.
  std::function<std::vector<Step>(Steps&)> plan;
  std::string returns;  // the node that must come back in a new life; empty: none
  Duration patience = kAway + kSuccessorMax;  // until the last step is done

  Places places;
  std::vector<int> frozen;

  Result<void> aim(const ClusterStatus& status) override {
    TROUPE_TRY(places, cluster_.places(status));
    steps_ = plan(*this);
    return {};
  }
  Result<Strike> strike() override {
    strike_ = strike_now();
    TROUPE_TRY_VOID(act_on_what_is_due());
    return strike_;
  }
  void tick(const Strike&) override {
    if (network_ != nullptr) (void)network_->keep_up();
    if (failure_.ok()) failure_ = act_on_what_is_due();
  }
  Result<void> release() override {
    const Instant deadline = steady_now() + patience;
    while (!steps_.empty() && failure_.ok() && steady_now() < deadline) {
      tick(strike_);
      std::this_thread::sleep_for(2ms);
    }
    TROUPE_TRY_VOID(failure_);
    if (steps_.empty()) return {};
    return Error{
        ErrorCode::kDeadlineExceeded,
        fmt::format("{} steps were not taken: what they wait for did not come", steps_.size())};
  }
  Result<void> check(const ClusterStatus& status) override {
    return returns.empty() ? Result<void>()
                           : check_returned(cluster_, status, returns, places.life(returns));
  }

  SweepCluster& cluster() { return cluster_; }
  PrivateNetwork& network() { return *network_; }
  Act kill_now(std::vector<int> processes) {
    return [processes]() -> Result<bool> {
      for (const int process : processes)
        if (process > 0) ::kill(process, SIGKILL);
      return true;
    };
  }
  // Whether the node lives in another life than at the beginning, and the cluster serves.
  Result<bool> is_back(const std::string& node) {
    const auto status = cluster_.rpc().status();
    if (!status.ok()) return false;  // the head is being started
    if (status.value().deployments.front().state != DeploymentState::kServing) return false;
    const auto now = cluster_.places(status.value());
    return now.ok() && now.value().life(node) != 0 && now.value().life(node) != places.life(node);
  }
  // Whoever holds the stage once its first holder is dead: its standby, or the process that was
  // started instead.
  Act kill_successor(uint32_t stage) {
    return [this, stage]() -> Result<bool> {
      const Places::Stage& old = places.stages.at(stage);
      if (old.standby != 0) return kill_now({old.standby})();
      const auto now = cluster_.stage_processes(stage);
      const auto next = std::ranges::find_if(now, [&](int one) { return one != old.process; });
      if (next == now.end()) return false;
      return kill_now({*next})();
    };
  }

 private:
  Result<void> act_on_what_is_due() {
    while (!steps_.empty() && steady_now() - strike_.at >= steps_.front().after) {
      TROUPE_TRY(const bool done, steps_.front().act());
      if (!done) return {};
      steps_.erase(steps_.begin());
    }
    return {};
  }

  SweepCluster& cluster_;
  PrivateNetwork* network_;
  std::vector<Step> steps_;
  Strike strike_;
  Result<void> failure_;
};

// One more request, which kills every process that is to compute it at one stage.
class Poison final : public Disturbance {
 public:
  explicit Poison(SweepCluster& cluster) : cluster_(cluster) {}
  ~Poison() override { (void)release(); }
  Result<void> aim(const ClusterStatus&) override {
    TROUPE_TRY(client_, cluster_.cluster().client());
    return {};
  }
  Result<Strike> strike() override {
    thread_ = std::thread([this] {
      GenerateRequest request = cluster_.request(0);
      request.sampling.seed = kPoisonSeed;
      answer_ = ask(*client_, request);
    });
    return strike_now();
  }
  Result<void> release() override {
    if (thread_.joinable()) thread_.join();
    return {};
  }
  Result<void> check(const ClusterStatus&) override {
    if (answer_.ok()) return Error{ErrorCode::kInternal, "the poison request was answered"};
    const std::string why = to_string(answer_.error());
    for (const char* word : {"quarantined", "was lost 3 times", "signal 9"})
      if (why.find(word) == std::string::npos)
        return Error{ErrorCode::kInternal,
                     fmt::format("\"{}\" is not in what its client was told: {}", word, why)};
    return {};
  }

 private:
  SweepCluster& cluster_;
  std::unique_ptr<Client> client_;
  std::thread thread_;
  Result<Answer> answer_ = Error{ErrorCode::kInternal, "not run"};
};

uint32_t draw(std::mt19937& random, uint32_t least, uint32_t most) {
  return least + static_cast<uint32_t>(random() % (most - least + 1));
}

Scene pair_at_once(const std::string& name, std::unique_ptr<Steps> steps, std::mt19937& random) {
  const uint32_t last = kSweepStages - 1;
  const uint32_t stage = name == "sampler+head" ? last
                         : name == "adjacent"   ? draw(random, 0, last - 1)
                         : name == "stage+head" ? draw(random, 1, last - 1)
                                                : draw(random, 0, last);
  steps->plan = [name, stage](Steps& scene) -> std::vector<Step> {
    const auto& stages = scene.places.stages;
    int other = scene.places.daemon(kSweepHead);
    if (name == "adjacent") other = stages[stage + 1].process;
    if (name == "stage+standby") other = stages[stage].standby;
    scene.cluster().spare(fmt::format("stage-{}", stage));
    if (name.ends_with("head")) scene.cluster().spare(kSweepHead);
    return {{Duration{0}, scene.kill_now({stages[stage].process, other})}};
  };
  return {std::move(steps), fmt::format("stage {}", stage)};
}

Scene death_in_recovery(const std::string& name, std::unique_ptr<Steps> steps,
                        std::mt19937& random) {
  const uint32_t stage = draw(random, 0, kSweepStages - 1);
  const uint32_t other = (stage + draw(random, 1, kSweepStages - 1)) % kSweepStages;
  const Duration after = std::chrono::milliseconds{draw(random, 0, kSecondWithinMs)};
  steps->plan = [name, stage, other, after](Steps& scene) -> std::vector<Step> {
    const int first = scene.places.stages[stage].process;
    const int head = scene.places.daemon(kSweepHead);
    scene.cluster().spare(fmt::format("stage-{}", stage));
    scene.cluster().spare(name == "then-successor" ? fmt::format("stage-{}", stage)
                          : name == "then-stage"   ? fmt::format("stage-{}", other)
                                                   : std::string(kSweepHead));
    if (name == "head-then-stage")
      return {{Duration{0}, scene.kill_now({head})}, {after, scene.kill_now({first})}};
    const Act second = name == "then-successor" ? scene.kill_successor(stage)
                       : name == "then-stage" ? scene.kill_now({scene.places.stages[other].process})
                                              : scene.kill_now({head});
    return {{Duration{0}, scene.kill_now({first})}, {after, second}};
  };
  const std::string also = name == "then-stage" ? fmt::format(", stage {}", other) : std::string();
  return {std::move(steps),
          fmt::format("stage {}{}, {:.0f} ms", stage, also, to_milliseconds(after))};
}

Scene node_returns(const std::string& name, std::unique_ptr<Steps> steps, std::mt19937& random) {
  const std::string node = fmt::format("node-{}", draw(random, 2, kSweepStages));
  steps->returns = node;
  steps->plan = [name, node](Steps& scene) -> std::vector<Step> {
    scene.cluster().spare(node);
    if (name == "zombie-3s")
      return {{Duration{0},
               [&scene, node]() -> Result<bool> {
                 scene.frozen = scene.cluster().processes_on(node);
                 freeze(scene.frozen);
                 return true;
               }},
              {kAway, [&scene]() -> Result<bool> {
                 thaw(std::exchange(scene.frozen, {}));
                 return true;
               }}};
    const CutDirection direction = name == "cut-3s"       ? CutDirection::kBoth
                                   : name == "cut-out-3s" ? CutDirection::kOut
                                                          : CutDirection::kIn;
    return {{Duration{0},
             [&scene, node, direction]() -> Result<bool> {
               TROUPE_TRY_VOID(scene.network().cut(scene.cluster().folder_of(node), direction,
                                                   scene.cluster().peer_port()));
               return true;
             }},
            {kAway, [&scene]() -> Result<bool> {
               TROUPE_TRY_VOID(scene.network().heal());
               return true;
             }}};
  };
  return {std::move(steps), node};
}

Scene nodes_at_once(const std::string& name, std::unique_ptr<Steps> steps, std::mt19937& random) {
  const uint32_t spared = name == "zone" ? 0 : draw(random, 2, kSweepStages);
  steps->plan = [spared](Steps& scene) -> std::vector<Step> {
    std::vector<int> processes;
    for (uint32_t number = 2; number <= kSweepStages; ++number) {
      if (number == spared) continue;
      const std::string node = fmt::format("node-{}", number);
      scene.cluster().spare(node);
      const auto of_node = scene.cluster().processes_on(node);
      // Daemons first: nothing is left to take a stage up again.
      processes.insert(processes.end(), of_node.rbegin(), of_node.rend());
    }
    return {{Duration{0}, scene.kill_now(processes)}};
  };
  return {std::move(steps), spared == 0 ? std::string() : fmt::format("all but node-{}", spared)};
}

// Every daemon in turn is started anew by its keeper, as an upgrade does; the next one's turn comes
// when the cluster serves on all nodes again. The head, whose streams pause longest, comes last.
Scene rolling_upgrade(std::unique_ptr<Steps> steps) {
  steps->patience = kUpgradeMax;
  steps->returns = kSweepHead;
  steps->plan = [](Steps& scene) {
    std::vector<Step> plan;
    std::string before;
    for (uint32_t number = kSweepStages; number >= 1; --number) {
      const std::string node = fmt::format("node-{}", number);
      plan.push_back({Duration{0}, [&scene, node, before]() -> Result<bool> {
                        if (!before.empty()) {
                          TROUPE_TRY(const bool back, scene.is_back(before));
                          if (!back) return false;
                        }
                        return ::kill(scene.cluster().keeper_of(node), SIGUSR2) == 0;
                      }});
      before = node;
    }
    plan.push_back(
        {Duration{0}, [&scene, before]() -> Result<bool> { return scene.is_back(before); }});
    return plan;
  };
  return {std::move(steps), ""};
}

}  // namespace

const std::vector<SceneTraits>& scenes() {
  static const std::vector<SceneTraits> all{
      {"adjacent", "two neighbouring stages at once", false, false},
      {"sampler+head", "the last stage, and the head's daemon", false, false},
      {"stage+head", "a stage in the middle, and the head's daemon", false, false},
      {"stage+standby", "a stage and its standby", true, false},
      {"then-successor", "a stage, then whoever took its seat", false, false},
      {"then-stage", "a stage, then another one", false, false},
      {"then-head", "a stage, then the head's daemon", false, false},
      {"head-then-stage", "the head's daemon, then a stage", false, false},
      {"two-nodes", "two workers at once", false, false},
      {"zone", "all workers at once", false, false},
      {"upgrade", "every daemon in turn is started anew, in order, the head last", false, false},
      {"zombie-3s", "a worker is frozen for 3 s", false, false},
      {"cut-3s", "a worker is cut off for 3 s", false, true},
      {"cut-out-3s", "nothing that a worker says arrives for 3 s", false, true},
      {"cut-in-3s", "a worker hears nothing for 3 s", false, true},
  };
  return all;
}

Scene make_scene(const std::string& name, SweepCluster& cluster, PrivateNetwork* network,
                 std::mt19937& random) {
  if (name == "poison") return {std::make_unique<Poison>(cluster), ""};
  const auto found =
      std::ranges::find_if(scenes(), [&](const SceneTraits& one) { return name == one.name; });
  if (found == scenes().end()) return {};
  auto steps = std::make_unique<Steps>(cluster, found->network ? network : nullptr);
  if (name.ends_with("-3s")) return node_returns(name, std::move(steps), random);
  if (name == "upgrade") return rolling_upgrade(std::move(steps));
  if (name == "zone" || name == "two-nodes") return nodes_at_once(name, std::move(steps), random);
  if (name.find('+') != std::string::npos || name == "adjacent")
    return pair_at_once(name, std::move(steps), random);
  return death_in_recovery(name, std::move(steps), random);
}

}  // namespace troupe::test

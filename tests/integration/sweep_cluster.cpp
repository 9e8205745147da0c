#include "tests/integration/sweep_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/prng.h"

namespace troupe::test {
namespace {

constexpr Duration kWellMax = 60s;

std::string home_of(uint32_t stage) {
  return fmt::format("node-{}", stage + 1);
}

// What it still lacks, in words; empty: it is well. `away` is set to a stage that is not at home.
std::string lacks(const ClusterStatus& status, bool standbys, const StageStatus** away) {
  const DeploymentStatus& deployment = status.deployments.front();
  if (deployment.state != DeploymentState::kServing)
    return fmt::format("{} {}", to_string(deployment.state), deployment.detail);
  uint32_t alive = 0;
  for (const NodeStatus& node : status.nodes) alive += node.state == NodeState::kAlive;
  if (alive != kSweepStages) return fmt::format("{} live nodes of {}", alive, kSweepStages);
  std::string lack;
  for (const StageStatus& stage : deployment.stages) {
    if (!stage.moving_to.empty()) return fmt::format("stage {} is moving", stage.index);
    if (standbys && stage.standby.empty()) lack = fmt::format("stage {}: no standby", stage.index);
    if (stage.node == home_of(stage.index)) continue;
    *away = &stage;
    return fmt::format("stage {} is on {}", stage.index, stage.node);
  }
  return lack;
}

// Arguments, each followed by a space.
std::string command_line(int process) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", process));
  std::stringstream text;
  text << file.rdbuf();
  std::string line = text.str();
  std::ranges::replace(line, '\0', ' ');
  return line;
}

}  // namespace

Result<void> SweepCluster::start() {
  std::vector<std::string> arguments{"--allow-fault-injection", "--standby", options_.standby};
  arguments.insert(arguments.end(), options_.up_arguments.begin(), options_.up_arguments.end());
  TROUPE_TRY(cluster_, Cluster::start({.model = options_.model,
                                       .nodes = kSweepStages,
                                       .stages = kSweepStages,
                                       .up_arguments = arguments}));
  for (uint32_t stream = 0; stream < options_.streams; ++stream) {
    TROUPE_TRY(auto client, cluster_->client());
    clients_.push_back(std::move(client));
  }
  TROUPE_TRY(rpc_, Client::connect({cluster_->rpc()}, {.answer_max = 10s}));
  return {};
}

Result<void> SweepCluster::prepare() {
  TROUPE_TRY(const ClusterStatus status, ready());
  (void)status;
  for (uint32_t stream = 0; stream < options_.streams; ++stream) {
    TROUPE_TRY(Answer answer, ask(*clients_[stream], request(stream)));
    references_.push_back(std::move(answer));
  }
  return {};
}

GenerateRequest SweepCluster::request(uint32_t stream) const {
  return story_request("run-" + to_hex(random_u64()), options_.tokens, 7 + stream);
}

Result<ClusterStatus> SweepCluster::ready() {
  if (!cluster_) TROUPE_TRY_VOID(start());
  return wait_until_well();
}

Result<ClusterStatus> SweepCluster::wait_until_well() {
  const Instant deadline = steady_now() + kWellMax;
  std::string last;
  while (steady_now() < deadline) {
    const auto status = rpc_->status();
    if (status.ok()) {
      const StageStatus* away = nullptr;
      last = lacks(status.value(), options_.standby != "none", &away);
      if (last.empty()) last = left_over();
      if (last.empty()) return status;
      if (away != nullptr) {
        // Refused while another thing is under way: then it is asked for again.
        const auto moved =
            rpc_->move({.model = "", .stage = away->index, .node = home_of(away->index)});
        if (!moved.ok()) last += ", " + to_string(moved.error());
      }
    } else {
      last = to_string(status.error());
    }
    std::this_thread::sleep_for(20ms);
  }
  return Error{ErrorCode::kDeadlineExceeded, "not well in time: " + last};
}

// Stages that nobody knows of any more, in words; empty: there are none.
std::string SweepCluster::left_over() const {
  const size_t wanted = options_.standby == "none" ? 1 : 2;
  for (uint32_t stage = 0; stage < kSweepStages; ++stage)
    if (const size_t found = stage_processes(stage).size(); found != wanted)
      return fmt::format("{} processes of stage {}, {} are known", found, stage, wanted);
  return {};
}

void SweepCluster::spare(const std::string& what) {
  // Beyond three deaths in ten seconds a supervisor gives a stage up, beyond ten a minute a keeper
  // its daemon.
  const bool node = what.starts_with("node");
  const size_t allowed = node ? 8 : 3;
  const Duration window = node ? 60s : 10s;
  std::deque<Instant>& struck = struck_[what];
  if (struck.size() >= allowed) {
    const Instant free = struck.front() + window + 500ms;
    if (free > steady_now()) std::this_thread::sleep_for(free - steady_now());
    struck.pop_front();
  }
  struck.push_back(steady_now());
}

Result<void> SweepCluster::end() {
  clients_.clear();
  rpc_ = nullptr;
  struck_.clear();
  const std::unique_ptr<Cluster> cluster = std::move(cluster_);
  return cluster ? cluster->down() : Result<void>();
}

int Places::daemon(const std::string& node) const {
  const auto found = daemons.find(node);
  return found == daemons.end() ? 0 : found->second;
}

uint64_t Places::life(const std::string& node) const {
  const auto found = lives.find(node);
  return found == lives.end() ? 0 : found->second;
}

Result<Places> SweepCluster::places(const ClusterStatus& status) const {
  if (status.deployments.front().stages.size() != kSweepStages)
    return Error{ErrorCode::kUnavailable, "there is no view"};
  Places places;
  const std::vector<int> all = cluster_->processes();
  for (const StageStatus& stage : status.deployments.front().stages) {
    Places::Stage place{stage.node, stage.standby, static_cast<int>(stage.process), 0};
    const std::string name = fmt::format(" {}/stage-{} ", stage.standby, stage.index);
    for (const int process : all)
      if (!stage.standby.empty() && command_line(process).find(name) != std::string::npos)
        place.standby = process;
    places.stages.push_back(std::move(place));
  }
  for (const NodeStatus& node : status.nodes) {
    if (node.state == NodeState::kDead) continue;
    places.daemons[node.id] = static_cast<int>(node.process);
    places.lives[node.id] = node.incarnation;
  }
  return places;
}

std::vector<int> SweepCluster::processes_on(const std::string& node) const {
  std::vector<int> stages, daemons;
  for (const int process : processes_of(folder_of(node))) {
    const std::string line = command_line(process);
    if (line.find(" --stage-process ") != std::string::npos)
      stages.push_back(process);
    else if (line.find(" --keep ") == std::string::npos)
      daemons.push_back(process);
  }
  stages.insert(stages.end(), daemons.begin(), daemons.end());
  return stages;
}

int SweepCluster::keeper_of(const std::string& node) const {
  for (const int process : processes_of(folder_of(node)))
    if (command_line(process).find(" --keep ") != std::string::npos) return process;
  return 0;
}

std::vector<int> SweepCluster::stage_processes(uint32_t stage) const {
  const std::string name = fmt::format("/stage-{} ", stage);
  std::vector<int> found;
  for (const int process : cluster_->processes())
    if (command_line(process).find(name) != std::string::npos) found.push_back(process);
  return found;
}

std::string SweepCluster::folder_of(const std::string& node) const {
  return cluster_->home() + "/clusters/default/" + node;
}

uint16_t SweepCluster::peer_port() const {
  const std::string& rpc = cluster_->rpc();
  return static_cast<uint16_t>(std::stoi(rpc.substr(rpc.rfind(':') + 1)) - 1);
}

}  // namespace troupe::test

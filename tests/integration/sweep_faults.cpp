#include "tests/integration/sweep_faults.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace troupe::test {
namespace {

constexpr KindTraits kKinds[] = {
    {"kill", false, false},  {"stop", false, false},  {"throw", false, false},
    {"hang", false, false},  {"daemon", true, false}, {"zombie", true, true},
    {"cut", true, true},     {"reset", true, false},  {"reset-data", false, false},
};
constexpr Duration kStrikeMax = 5s;

// The letter of /proc/PID/stat; 'X' for a process that is gone.
char process_state(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::stringstream text;
  text << file.rdbuf();
  const size_t name_end = text.str().rfind(") ");
  return name_end == std::string::npos ? 'X' : text.str()[name_end + 2];
}

bool wait_for(int process, const char* states) {
  const Instant deadline = steady_now() + kStrikeMax;
  while (std::string_view(states).find(process_state(process)) == std::string_view::npos) {
    if (steady_now() > deadline) return false;
    std::this_thread::sleep_for(300us);
  }
  return true;
}

Strike strike_now() {
  return {steady_now(), wall_clock_ms()};
}

}  // namespace

const KindTraits* find_kind(const std::string& name) {
  const auto found = std::ranges::find_if(kKinds, [&](const auto& kind) { return name == kind.name; });
  return found == std::end(kKinds) ? nullptr : found;
}

bool is_point(const Point& point) {
  const KindTraits* kind = find_kind(point.kind);
  if (kind == nullptr) return false;
  const bool fails_alone = point.kind == "throw" || point.kind == "hang";
  if (fails_alone && point.phase == "sampled" && point.stage + 1 != kSweepStages) return false;
  return !kind->whole_node || point.stage != 0;
}

Result<void> Striker::aim(const ClusterStatus& status, const Point& point) {
  point_ = point;
  victim_ = {};
  for (const StageStatus& stage : status.deployments.front().stages) {
    if (stage.index + 1 == kSweepStages)
      victim_.last_stage_process = static_cast<int>(stage.process);
    if (stage.index != point.stage) continue;
    victim_.node = stage.node;
    victim_.stage_process = static_cast<int>(stage.process);
  }
  for (const NodeStatus& node : status.nodes)
    if (node.id == victim_.node) victim_.daemon = static_cast<int>(node.process);
  if (victim_.stage_process == 0 || victim_.daemon == 0 || victim_.last_stage_process == 0)
    return Error{ErrorCode::kNotFound, fmt::format("no process of stage {}", point.stage)};
  for (const int process : processes_of(cluster_.home() + "/clusters/default/" + victim_.node)) {
    std::ifstream file(fmt::format("/proc/{}/cmdline", process));
    std::stringstream line;
    line << file.rdbuf();
    if (line.str().find("--stage-process") != std::string::npos) victim_.stages.push_back(process);
  }
  victim_.all = victim_.stages;
  victim_.all.push_back(victim_.daemon);
  return {};
}

Result<void> Striker::arm(uint32_t stage, const std::string& fault) {
  return rpc_.inject_fault({.model = "", .stage = stage, .text = fault});
}

Result<Strike> Striker::strike() {
  const bool by_itself = point_.kind == "kill" || point_.kind == "stop" || point_.kind == "throw" ||
                         point_.kind == "hang";
  const bool at_its_own = point_.phase != "sampled" || point_.stage + 1 == kSweepStages;
  return by_itself && at_its_own ? strike_by_itself() : strike_from_outside();
}

Result<Strike> Striker::strike_by_itself() {
  const std::string phase = point_.phase == "sampled" ? "computed" : point_.phase;
  TROUPE_TRY_VOID(arm(point_.stage, point_.kind + "@" + phase));
  // What fails inside a process does not show from outside: then the time of arming has to do.
  const bool shows = point_.kind == "kill" || point_.kind == "stop";
  if (shows && !wait_for(victim_.stage_process, point_.kind == "kill" ? "ZX" : "T"))
    return Error{ErrorCode::kDeadlineExceeded, "no frame came to the point: nothing was struck"};
  if (point_.kind == "stop") frozen_.push_back(victim_.stage_process);
  return strike_now();
}

Result<Strike> Striker::strike_from_outside() {
  const bool sampled = point_.phase == "sampled";
  const int passes_it = sampled ? victim_.last_stage_process : victim_.stage_process;
  TROUPE_TRY_VOID(arm(sampled ? kSweepStages - 1 : point_.stage,
                      "stop@" + (sampled ? "computed" : point_.phase)));
  if (!wait_for(passes_it, "T"))
    return Error{ErrorCode::kDeadlineExceeded, "no frame came to the point: nothing was struck"};
  const auto done = act();
  const Strike strike = strike_now();
  if (std::ranges::find(frozen_, passes_it) == frozen_.end()) ::kill(passes_it, SIGCONT);
  if (!done.ok()) return done.error();
  return strike;
}

Result<void> Striker::act() {
  const auto freeze = [this](int process) {
    ::kill(process, SIGSTOP);
    frozen_.push_back(process);
  };
  if (point_.kind == "kill") ::kill(victim_.stage_process, SIGKILL);
  if (point_.kind == "stop") freeze(victim_.stage_process);
  if (point_.kind == "daemon") ::kill(victim_.daemon, SIGKILL);
  if (point_.kind == "zombie") std::ranges::for_each(victim_.all, freeze);
  if (point_.kind == "reset") return reset_connections(victim_.all);
  if (point_.kind == "reset-data") return reset_connections({victim_.stage_process});
  if (point_.kind != "cut") return {};
  if (network_ == nullptr) return Error{ErrorCode::kUnavailable, "no network to cut"};
  cut_ = true;
  return network_->cut(victim_.all);
}

void Striker::keep_up() {
  if (cut_) (void)network_->cut(victim_.all);
}

Result<void> Striker::release() {
  for (const int process : frozen_) {
    // The daemon comes last and a little later, so that its stages can say what they had to say.
    if (process == victim_.daemon) std::this_thread::sleep_for(50ms);
    if (process_state(process) == 'T') ::kill(process, SIGCONT);
  }
  frozen_.clear();
  if (!std::exchange(cut_, false)) return {};
  return network_->heal();
}

}  // namespace troupe::test

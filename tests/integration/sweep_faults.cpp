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
    {"kill", false, false}, {"stop", false, false},  {"throw", false, false},
    {"hang", false, false}, {"daemon", true, false}, {"zombie", true, true},
    {"cut", true, true},    {"cut-out", true, true}, {"cut-in", true, true},
};
constexpr Duration kStrikeMax = 5s;

bool wait_for(int process, const char* states) {
  const Instant deadline = steady_now() + kStrikeMax;
  while (std::string_view(states).find(process_state(process)) == std::string_view::npos) {
    if (steady_now() > deadline) return false;
    std::this_thread::sleep_for(300us);
  }
  return true;
}

}  // namespace

const KindTraits* find_kind(const std::string& name) {
  const auto found =
      std::ranges::find_if(kKinds, [&](const auto& kind) { return name == kind.name; });
  return found == std::end(kKinds) ? nullptr : found;
}

bool is_point(const Point& point) {
  const KindTraits* kind = find_kind(point.kind);
  if (kind == nullptr) return false;
  const bool fails_alone = point.kind == "throw" || point.kind == "hang";
  if (fails_alone && point.phase == "sampled" && point.stage + 1 != kSweepStages) return false;
  return !kind->whole_node || point.stage != 0;
}

bool needs_network(const std::string& kind) {
  return kind.starts_with("cut");
}

char process_state(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::stringstream text;
  text << file.rdbuf();
  const size_t name_end = text.str().rfind(") ");
  return name_end == std::string::npos ? 'X' : text.str()[name_end + 2];
}

void freeze(const std::vector<int>& processes) {
  for (const int process : processes) ::kill(process, SIGSTOP);
}

void thaw(const std::vector<int>& processes) {
  for (const int process : processes) {
    if (processes.size() > 1 && process == processes.back()) std::this_thread::sleep_for(50ms);
    if (process_state(process) == 'T') ::kill(process, SIGCONT);
  }
}

Result<void> PointFault::aim(const ClusterStatus& status) {
  const bool node = find_kind(point_.kind)->whole_node;
  TROUPE_TRY(const Places places, cluster_.places(status));
  node_ = places.stages[point_.stage].node;
  stage_process_ = places.stages[point_.stage].process;
  last_stage_process_ = places.stages.back().process;
  daemon_ = places.daemon(node_);
  life_ = places.life(node_);
  if (daemon_ == 0) return Error{ErrorCode::kUnavailable, node_ + " is dead already"};
  if (node && node_ == kSweepHead)
    return Error{ErrorCode::kUnavailable, "the stage is on the head, which is no victim of this"};
  all_ = cluster_.processes_on(node_);
  cluster_.spare(node ? node_ : fmt::format("stage-{}", point_.stage));
  return {};
}

Result<void> PointFault::arm(uint32_t stage, const std::string& fault) {
  return cluster_.rpc().inject_fault({.model = "", .stage = stage, .text = fault});
}

Result<Strike> PointFault::strike() {
  const bool by_itself = point_.kind == "kill" || point_.kind == "stop" || point_.kind == "throw" ||
                         point_.kind == "hang";
  const bool at_its_own = point_.phase != "sampled" || point_.stage + 1 == kSweepStages;
  return by_itself && at_its_own ? strike_by_itself() : strike_from_outside();
}

Result<Strike> PointFault::strike_by_itself() {
  const std::string phase = point_.phase == "sampled" ? "computed" : point_.phase;
  const Strike armed = strike_now();
  TROUPE_TRY_VOID(arm(point_.stage, point_.kind + "@" + phase));
  // What fails inside a process does not show from outside: then the time of arming has to do.
  if (point_.kind == "throw" || point_.kind == "hang") return armed;
  if (!wait_for(stage_process_, point_.kind == "kill" ? "ZX" : "TZX"))
    return Error{ErrorCode::kDeadlineExceeded, "no frame came to the point: nothing was struck"};
  return strike_now();
}

Result<Strike> PointFault::strike_from_outside() {
  const bool sampled = point_.phase == "sampled";
  const int passes_it = sampled ? last_stage_process_ : stage_process_;
  TROUPE_TRY_VOID(arm(sampled ? kSweepStages - 1 : point_.stage,
                      "stop@" + (sampled ? "computed" : point_.phase)));
  if (!wait_for(passes_it, "T"))
    return Error{ErrorCode::kDeadlineExceeded, "no frame came to the point: nothing was struck"};
  const auto done = act();
  const Strike strike = strike_now();
  // What dies with its daemon stays where it is until then.
  const bool dies = point_.kind == "daemon" && passes_it == stage_process_;
  if (!dies && std::ranges::find(frozen_, passes_it) == frozen_.end()) ::kill(passes_it, SIGCONT);
  if (!done.ok()) return done.error();
  return strike;
}

Result<void> PointFault::act() {
  if (point_.kind == "kill") ::kill(stage_process_, SIGKILL);
  if (point_.kind == "daemon") ::kill(daemon_, SIGKILL);
  if (point_.kind == "stop") frozen_ = {stage_process_};
  if (point_.kind == "zombie") frozen_ = all_;
  freeze(frozen_);
  if (!needs_network(point_.kind)) return {};
  if (network_ == nullptr) return Error{ErrorCode::kUnavailable, "no network to cut"};
  cut_ = true;
  return network_->cut(cluster_.folder_of(node_),
                       point_.kind == "cut"       ? CutDirection::kBoth
                       : point_.kind == "cut-out" ? CutDirection::kOut
                                                  : CutDirection::kIn,
                       cluster_.peer_port());
}

void PointFault::tick(const Strike&) {
  if (cut_) (void)network_->keep_up();
}

Result<void> PointFault::release() {
  thaw(std::exchange(frozen_, {}));
  if (!std::exchange(cut_, false)) return {};
  return network_->heal();
}

Result<void> PointFault::check(const ClusterStatus& status) {
  return holds() ? check_returned(cluster_, status, node_, life_) : Result<void>();
}

}  // namespace troupe::test

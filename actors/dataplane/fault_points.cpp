#include "actors/dataplane/fault_points.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>

namespace troupe {
namespace {

template <class Value>
struct Word {
  const char* word;
  Value value;
};
constexpr Word<FaultAction> kActions[] = {{"throw", FaultAction::kThrow},
                                          {"kill", FaultAction::kKill},
                                          {"stop", FaultAction::kStop},
                                          {"hang", FaultAction::kHang},
                                          {"flip", FaultAction::kFlip}};
constexpr Word<FaultPoint> kPoints[] = {{"arrive", FaultPoint::kArrive},
                                        {"accept", FaultPoint::kAccept},
                                        {"compute", FaultPoint::kCompute},
                                        {"computed", FaultPoint::kComputed},
                                        {"sent", FaultPoint::kSent}};

template <class Value, size_t N>
std::optional<Value> find(const Word<Value> (&words)[N], const std::string& word) {
  for (const auto& one : words)
    if (word == one.word) return one.value;
  return std::nullopt;
}

}  // namespace

Result<ArmedFault> parse_fault(const std::string& text) {
  const Error wrong{ErrorCode::kInvalidArgument,
                    fmt::format("fault '{}'; allowed are throw, kill, stop or hang, then "
                                "optionally @arrive, @accept, @compute, @computed or @sent, then "
                                "optionally +N; or flip, then optionally +N",
                                text)};
  const size_t plus = text.find('+');
  const std::string head = text.substr(0, plus);
  const size_t at = head.find('@');
  const auto action = find(kActions, head.substr(0, at));
  if (!action) return wrong;
  // Only a compute thread can hang.
  const auto usual = action == FaultAction::kHang   ? FaultPoint::kCompute
                     : action == FaultAction::kFlip ? FaultPoint::kComputed
                                                    : FaultPoint::kAccept;
  const auto point = at == std::string::npos ? usual : find(kPoints, head.substr(at + 1));
  if (!point || (action == FaultAction::kFlip && point != FaultPoint::kComputed)) return wrong;
  ArmedFault fault{*action, *point, 0};
  if (plus == std::string::npos) return fault;
  const char* last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data() + plus + 1, last, fault.after);
  if (status != std::errc{} || end != last) return wrong;
  return fault;
}

void FaultPoints::arm(ArmedFault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  armed_ = true;
}

std::optional<FaultAction> FaultPoints::strike(FaultPoint point) {
  const std::lock_guard lock(mutex_);
  if (!armed_ || fault_.point != point) return std::nullopt;
  if (fault_.after > 0) {
    --fault_.after;
    return std::nullopt;
  }
  armed_ = false;
  if (fault_.action == FaultAction::kKill) ::raise(SIGKILL);
  if (fault_.action == FaultAction::kStop) ::kill(::getpid(), SIGSTOP);
  return fault_.action;
}

}  // namespace troupe

#include "actors/logic/view_fence.h"

#include "base/check.h"

namespace troupe {

const char* to_string(FenceVerdict verdict) {
  switch (verdict) {
    case FenceVerdict::kAccept:
      return "accept";
    case FenceVerdict::kOldView:
      return "old view";
    case FenceVerdict::kNewerView:
      return "newer view";
    case FenceVerdict::kWrongReceiver:
      return "wrong receiver";
    case FenceVerdict::kStranger:
      return "stranger";
    case FenceVerdict::kRepeat:
      return "repeat";
    case FenceVerdict::kGap:
      return "gap";
  }
  return "unknown";
}

ViewFence::ViewFence(Incarnation self) : self_(self) {
  TROUPE_CHECK(self, "a receiver has an incarnation");
}

ViewFence::Installed ViewFence::install(ViewNumber view, std::span<const Incarnation> senders) {
  if (view < view_) return Installed::kOld;
  if (view == view_) return Installed::kRepeat;
  view_ = view;
  last_.clear();
  for (const Incarnation sender : senders) last_[sender] = 0;
  return Installed::kInstalled;
}

FenceVerdict ViewFence::check(ViewNumber view, Incarnation sender, Incarnation receiver,
                              uint64_t edge_sequence) {
  const FenceVerdict verdict = [&] {
    if (view < view_) return FenceVerdict::kOldView;
    if (view > view_) return FenceVerdict::kNewerView;
    if (receiver != self_) return FenceVerdict::kWrongReceiver;
    const auto edge = last_.find(sender);
    if (edge == last_.end()) return FenceVerdict::kStranger;
    uint64_t& last = edge->second;
    if (edge_sequence <= last) return FenceVerdict::kRepeat;
    const bool next = edge_sequence == last + 1;
    last = edge_sequence;
    return next ? FenceVerdict::kAccept : FenceVerdict::kGap;
  }();
  ++counts_[static_cast<size_t>(verdict)];
  return verdict;
}

uint64_t ViewFence::dropped() const {
  uint64_t sum = 0;
  for (size_t verdict = 0; verdict < kFenceVerdicts; ++verdict)
    if (!usable(static_cast<FenceVerdict>(verdict))) sum += counts_[verdict];
  return sum;
}

}  // namespace troupe

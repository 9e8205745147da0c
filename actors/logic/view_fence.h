// Fencing at a receiver (invariant I2): a message counts only if its view is the receiver's, it is
// addressed to this very life, and its sender is one that the view names. Never by clock, never on
// the sender's honour. The edge sequence shows repeats and losses on the way.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"

namespace troupe {

enum class FenceVerdict : uint8_t {
  kAccept,
  kOldView,    // drop: the sender is behind, or a zombie
  kNewerView,  // drop: this receiver is behind; the view will come, and what was sent is sent again
  kWrongReceiver,  // drop: meant for an earlier life at this address
  kStranger,       // drop: nobody who may send to this receiver
  kRepeat,         // drop: this edge sequence was seen, or a later one was
  kGap,  // use it: sound, but frames before it were lost; their positions will be asked for or sent
         // again
};
inline constexpr size_t kFenceVerdicts = 7;
const char* to_string(FenceVerdict verdict);
inline bool usable(FenceVerdict verdict) {
  return verdict == FenceVerdict::kAccept || verdict == FenceVerdict::kGap;
}

class ViewFence {
 public:
  explicit ViewFence(Incarnation self);  // 0 is nobody: checked

  enum class Installed : uint8_t { kInstalled, kRepeat, kOld };
  // From now on this view and these senders; edge sequences start anew. A repeat or an older one
  // changes nothing.
  Installed install(ViewNumber view, std::span<const Incarnation> senders);

  // Counts each verdict. Before the first install every view is a newer one.
  FenceVerdict check(ViewNumber view, Incarnation sender, Incarnation receiver,
                     uint64_t edge_sequence);

  ViewNumber view() const { return view_; }
  Incarnation self() const { return self_; }
  uint64_t count(FenceVerdict verdict) const { return counts_[static_cast<size_t>(verdict)]; }
  uint64_t dropped() const;  // of all verdicts that are not usable

 private:
  Incarnation self_;
  ViewNumber view_;
  std::map<Incarnation, uint64_t> last_;  // by permitted sender: newest edge sequence seen
  std::array<uint64_t, kFenceVerdicts> counts_{};
};

}  // namespace troupe

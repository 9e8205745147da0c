// How a sequence goes on after a view change: which stages lack part of it, and what is the
// shortest way to give it to them. A stage that lacks rows takes them from the journal of the stage
// before it; where that does not reach back far enough, the stage before re-executes them from the
// journal before its own (position-addressed KV: it changes nothing and gives the same bytes, I5),
// and so on, in the end from the token log. So adjacent losses, and journals dropped for want of
// memory, cost time and nothing else.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include "base/ids.h"

namespace troupe {

// What a stage has of a sequence: KV of [0, length), its output of [journal_first, journal_end).
struct HeldRange {
  uint32_t length = 0;
  uint32_t journal_first = 0, journal_end = 0;
};
using StageHoldings = std::map<SequenceId, HeldRange>;

inline constexpr uint32_t kToTheEnd = std::numeric_limits<uint32_t>::max();

// Positions [from, to) must be executed by the stages entry … exit once more. Their input comes
// from the token log if entry is 0, else from the journal of stage entry - 1.
struct Gap {
  uint32_t from = 0, to = 0;
  uint32_t entry = 0, exit = 0;
  uint32_t rows() const { return to - from; }
  friend bool operator==(const Gap&, const Gap&) = default;
};

// `fed`: positions that every stage had executed; `held` by stage, at least one. Nothing if no
// stage lacks any of them.
std::optional<Gap> find_gap(uint32_t fed, std::span<const HeldRange> held);

}  // namespace troupe

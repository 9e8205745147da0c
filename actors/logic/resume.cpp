#include "actors/logic/resume.h"

#include <algorithm>

namespace troupe {

std::optional<Gap> find_gap(uint32_t fed, std::span<const HeldRange> held) {
  std::optional<Gap> gap;
  for (uint32_t stage = 0; stage < held.size(); ++stage) {
    const uint32_t length = held[stage].length;
    if (length >= fed) continue;
    if (!gap) gap = Gap{.from = length, .to = fed, .entry = stage, .exit = stage};
    gap->from = std::min(gap->from, length);
    gap->exit = stage;
  }
  if (!gap) return gap;
  const auto reaches_back = [&](const HeldRange& before) {
    return before.journal_first <= gap->from && before.journal_end >= gap->to;
  };
  while (gap->entry > 0 && !reaches_back(held[gap->entry - 1])) --gap->entry;
  return gap;
}

}  // namespace troupe

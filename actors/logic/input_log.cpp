#include "actors/logic/input_log.h"

#include <algorithm>
#include <utility>

namespace troupe {

template <class Condition>
void InputLog::drop_if(Condition condition) {
  std::erase_if(pieces_, [&](const InputPiece& piece) {
    if (!condition(piece)) return false;
    bytes_ -= piece.bytes();
    rows_ -= piece.rows;
    return true;
  });
}

void InputLog::append(InputPiece piece) {
  // Rows that were executed again: they are here already, or checked already.
  const auto newest = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const InputPiece& known) {
    return known.sequence == piece.sequence;
  });
  if (newest != pieces_.rend() && piece.end() <= newest->end()) return;
  for (const uint32_t block : piece.blocks) {
    const SequenceId before = std::exchange(owners_[block], piece.sequence);
    if (before && before != piece.sequence) forget(before);
  }
  bytes_ += piece.bytes();
  rows_ += piece.rows;
  pieces_.push_back(std::move(piece));
  // A sequence without its oldest piece is of no use here: all of it goes.
  while (bytes_ > bytes_max_ && pieces_.size() > 1) {
    const SequenceId oldest = pieces_.front().sequence;
    forget(oldest);
    given_up_.insert(oldest);
  }
}

std::optional<uint32_t> InputLog::first(SequenceId sequence) const {
  const auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const InputPiece& piece) {
    return piece.sequence == sequence;
  });
  if (found == pieces_.end()) return std::nullopt;
  return found->position;
}

std::vector<InputPiece> InputLog::next(const std::map<SequenceId, uint32_t>& stored,
                                       uint32_t rows_max) const {
  std::map<SequenceId, uint32_t> reached = stored;
  std::vector<InputPiece> taken;
  uint32_t rows = 0;
  for (const InputPiece& piece : pieces_) {
    if (rows > 0 && rows + piece.rows > rows_max) break;
    uint32_t& held = reached[piece.sequence];
    if (piece.position > held) continue;
    held = std::max(held, piece.end());
    rows += piece.rows;
    taken.push_back(piece);
  }
  std::stable_sort(taken.begin(), taken.end(), [](const InputPiece& a, const InputPiece& b) {
    return a.sequence < b.sequence;
  });
  return taken;
}

void InputLog::checked(SequenceId sequence, uint32_t position) {
  drop_if([&](const InputPiece& piece) {
    return piece.sequence == sequence && piece.end() <= position;
  });
}

void InputLog::forget(SequenceId sequence) {
  drop_if([&](const InputPiece& piece) { return piece.sequence == sequence; });
  given_up_.erase(sequence);
}

void InputLog::clear() {
  pieces_.clear();
  owners_.clear();
  given_up_.clear();
  bytes_ = 0;
  rows_ = 0;
}

}  // namespace troupe

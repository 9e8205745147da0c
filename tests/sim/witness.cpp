#include "tests/sim/witness.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/ledger_store.h"
#include "base/digest.h"

namespace troupe::sim {
namespace {

bool same_view(const View& a, const View& b) {
  const auto one = encode_view(a), other = encode_view(b);
  return one.ok() && other.ok() && digest64(one.value().view()) == digest64(other.value().view());
}

uint64_t content_of(const Frame& frame) {
  uint64_t digest = digest64(frame.payload.view(), static_cast<uint64_t>(frame.header.kind));
  for (const FrameSegment& segment : frame.header.segments) {
    const uint64_t facts[] = {digest, segment.sequence.value, segment.position, segment.rows};
    digest = digest64(ByteSpan{reinterpret_cast<const std::byte*>(facts), sizeof facts});
    digest = digest64(ByteSpan{reinterpret_cast<const std::byte*>(segment.tokens.data()),
                               segment.tokens.size() * sizeof(uint32_t)},
                      digest);
  }
  return digest;
}

uint64_t digest_of_row(uint32_t stage, uint32_t position, uint64_t state) {
  const uint64_t facts[] = {stage, position, state};
  return digest64(ByteSpan{reinterpret_cast<const std::byte*>(facts), sizeof facts});
}

}  // namespace

void Witness::expect_row(uint32_t stage, uint32_t position, uint64_t state) {
  rows_.insert(digest_of_row(stage, position, state));
}

void Witness::row(uint32_t stage, uint32_t position, uint64_t state) {
  if (!rows_.contains(digest_of_row(stage, position, state)))
    broken(
        fmt::format("I1: stage {} has a row at {} that no undisturbed run gives", stage, position));
}

void Witness::stored(Incarnation life, SequenceId sequence, uint32_t length) {
  uint32_t& most = stored_[life][sequence.value];
  most = std::max(most, length);
}

uint32_t Witness::most_stored(Incarnation life, SequenceId sequence) const {
  const auto known = stored_.find(life);
  if (known == stored_.end()) return 0;
  const auto found = known->second.find(sequence.value);
  return found == known->second.end() ? 0 : found->second;
}

void Witness::claims(const ViewInstalled& installed) {
  const auto view = views_.find(installed.view);
  if (view == views_.end())
    return broken(
        fmt::format("view {} was installed and is not in the ledger", installed.view.value));
  for (const StageHeld& held : installed.held) {
    if (held.stage >= view->second.seats.size()) continue;
    const Incarnation life = view->second.seats[held.stage].incarnation;
    for (const SequenceHeld& sequence : held.sequences)
      if (sequence.length > most_stored(life, sequence.sequence))
        broken(fmt::format("I7: stage {} says it holds {} rows of sequence {} and has {}",
                           held.stage, sequence.length, sequence.sequence.value,
                           most_stored(life, sequence.sequence)));
  }
}

// Twice may be a race: the first answer came when the head had changed its mind.
void Witness::refused(uint32_t stage, const NodeId& node, uint64_t life) {
  if (++refusals_[{stage, node, life}] > 2)
    broken(fmt::format("stage {} went to {} again and again, which refused it", stage, node));
}

void Witness::asked_for(uint32_t stage, const NodeId& node) {
  std::erase_if(refusals_, [&](const auto& entry) {
    return std::get<0>(entry.first) == stage && std::get<1>(entry.first) == node;
  });
}

void Witness::reached(const std::string& step) {
  const auto found = upon_.find(step);
  if (found == upon_.end()) return;
  const auto actions = std::move(found->second);
  upon_.erase(found);
  for (const auto& action : actions) action();
}

void Witness::committed(const View& view) {
  const uint64_t newest = views_.empty() ? 0 : views_.rbegin()->first.value;
  if (view.number.value != newest + 1)
    broken(fmt::format("ledger: view {} was installed behind {}", view.number.value, newest));
  views_.insert_or_assign(view.number, view);
  reached("swap");
}

void Witness::told(const View& view) {
  const auto found = views_.find(view.number);
  if (found == views_.end())
    return broken(fmt::format("view {} is in force and not in the ledger", view.number.value));
  if (!same_view(found->second, view))
    broken(fmt::format("view {} is in force and the ledger has another", view.number.value));
  reached("install");
}

// Standbys are not told of ends: they forget a sequence when another one needs its blocks.
std::string Witness::held_in_seats() const {
  std::string all;
  if (newest() == nullptr) return all;
  for (const Seat& seat : newest()->seats) {
    const auto found = held_.find(seat.incarnation);
    if (found != held_.end() && found->second.second > 0)
      all += fmt::format("{}stage {} holds {} sequences", all.empty() ? "" : ", ",
                         found->second.first, found->second.second);
  }
  return all;
}

Witness::Edge Witness::edge_of(const FrameHeader& header) {
  return {header.sender.value, header.receiver.value, header.view.value, header.edge_sequence};
}

void Witness::sent(const Frame& frame) {
  const auto [entry, is_new] = sent_.emplace(edge_of(frame.header), content_of(frame));
  if (!is_new && entry->second != content_of(frame))
    broken(fmt::format("I2: two frames of {} to {} in view {} have number {}",
                       to_string(frame.header.sender), to_string(frame.header.receiver),
                       frame.header.view.value, frame.header.edge_sequence));
  if (frame.header.kind == FrameKind::kKvStored)
    for (const FrameSegment& segment : frame.header.segments)
      if (segment.position > most_stored(frame.header.sender, segment.sequence))
        broken(fmt::format("I7: {} acknowledges {} rows of sequence {} and has {}",
                           to_string(frame.header.sender), segment.position, segment.sequence.value,
                           most_stored(frame.header.sender, segment.sequence)));
  replays_ += frame.header.kind == FrameKind::kReplay ? 1 : 0;
  refused_frames_ += frame.header.kind == FrameKind::kRefused ? 1 : 0;
  if (frame.header.kind == FrameKind::kReplay) reached("replay");
  if (frame.header.kind == FrameKind::kKvRows) reached("feed");
}

void Witness::computes(Incarnation life, uint32_t stage, const Frame& frame) {
  const FrameHeader& header = frame.header;
  ++computed_;
  computed_in_ = std::max(computed_in_, header.view);
  const std::string where =
      fmt::format("I2: stage {} ({}) took a frame of view {} from {}", stage, to_string(life),
                  header.view.value, to_string(header.sender));
  if (header.receiver != life) return broken(where + ", meant for another life");
  const auto sent = sent_.find(edge_of(header));
  if (sent == sent_.end()) return broken(where + ", which nobody sent in this view");
  if (sent->second != content_of(frame)) return broken(where + ", which was sent with other bytes");
  const auto view = views_.find(header.view);
  if (view == views_.end()) return broken(where + ", which the ledger does not have");
  const std::vector<Seat>& seats = view->second.seats;
  if (header.kind == FrameKind::kInputRows) {  // a standby that checks its stage
    const auto& standbys = view->second.standbys;
    const bool follows = std::any_of(standbys.begin(), standbys.end(), [&](const Standby& one) {
      return one.stage == stage && one.seat.incarnation == life &&
             one.policy == StandbyPolicy::kInput;
    });
    if (!follows || stage >= seats.size() || seats[stage].incarnation != header.sender)
      broken(where + ", which it does not follow in this view");
    return;
  }
  const Incarnation from = stage == 0 ? view->second.batcher : seats[stage - 1].incarnation;
  if (stage >= seats.size() || seats[stage].incarnation != life || header.sender != from)
    broken(where + ", which does not seat them so");
}

}  // namespace troupe::sim

#include "tests/sim/witness.h"

#include <fmt/format.h>

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

}  // namespace

void Witness::committed(const View& view) {
  const uint64_t newest = views_.empty() ? 0 : views_.rbegin()->first.value;
  if (view.number.value != newest + 1)
    broken(fmt::format("ledger: view {} was installed behind {}", view.number.value, newest));
  views_.insert_or_assign(view.number, view);
}

void Witness::told(const View& view) {
  const auto found = views_.find(view.number);
  if (found == views_.end())
    return broken(fmt::format("view {} is in force and not in the ledger", view.number.value));
  if (!same_view(found->second, view))
    broken(fmt::format("view {} is in force and the ledger has another", view.number.value));
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
}

void Witness::computes(Incarnation life, uint32_t stage, const Frame& frame) {
  const FrameHeader& header = frame.header;
  ++computed_;
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
  const Incarnation from = stage == 0 ? view->second.batcher : seats[stage - 1].incarnation;
  if (stage >= seats.size() || seats[stage].incarnation != life || header.sender != from)
    broken(where + ", which does not seat them so");
}

}  // namespace troupe::sim

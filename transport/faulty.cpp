#include "transport/faulty.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace troupe {
namespace {

// A stream of draws from a seed; the n-th is the same on every machine.
class Chance {
 public:
  explicit Chance(uint64_t seed) : seed_(seed) {}
  double uniform() { return static_cast<double>(philox_uniform(seed_, draws_++, 0)); }
  bool happens(double odds) { return uniform() < odds; }
  size_t below(size_t count) {
    return std::min(count - 1, static_cast<size_t>(uniform() * static_cast<double>(count)));
  }

 private:
  uint64_t seed_;
  uint64_t draws_ = 0;
};

// Any key does: the frame is encoded, damaged and decoded in one place.
constexpr uint64_t kDamageKey = 0x64616d616765;

}  // namespace

class FaultyTransport::State final : public TransportEvents {
 public:
  State(TransportEvents& outer, uint64_t seed, FaultOdds odds)
      : events(outer), odds_(odds), sending_(seed), receiving_(seed ^ 0x9E3779B97F4A7C15U) {}

  void on_frame(Frame frame) override;
  void on_lost(ConnectionId connection, Error why) override;
  void on_credit(ConnectionId connection) override { events.on_credit(connection); }
  void on_garbage(Error what) override { events.on_garbage(std::move(what)); }

  SendOutcome send(ConnectionId connection, Frame& frame);
  void forget(ConnectionId connection);
  void pump(Instant now);
  std::optional<Instant> next_due() const;
  void set(FaultOdds odds) {
    const std::lock_guard lock(mutex_);
    odds_ = odds;
  }
  void cut(bool& direction, bool value) {
    const std::lock_guard lock(mutex_);
    direction = value;
  }

  TransportEvents& events;
  std::unique_ptr<Transport> inner;
  bool outgoing_cut = false, incoming_cut = false;  // under the lock

 private:
  struct Held {
    Instant due;
    Frame frame;
  };
  struct Line {
    std::deque<Held> held;  // by due time; equal ones in the order sent
    bool credit_wanted = false;
  };

  void hold(Line& line, Instant due, Frame frame);
  void push_due(ConnectionId connection, Line& line, std::vector<Frame>& dropped);
  Error damage(const Frame& frame, double where);

  mutable std::mutex mutex_;
  FaultOdds odds_;
  Chance sending_, receiving_;
  std::map<ConnectionId, Line> lines_;
  Instant now_{};
};

SendOutcome FaultyTransport::State::send(ConnectionId connection, Frame& frame) {
  Frame lost;  // freed unlocked: its lease may belong to a transport that calls back
  const std::lock_guard lock(mutex_);
  const bool faultless = odds_.lose == 0 && odds_.repeat == 0 && odds_.delay == 0 &&
                         odds_.reorder == 0 && !outgoing_cut;
  if (faultless && !lines_.contains(connection)) return inner->send(connection, frame);
  Line& line = lines_[connection];
  if (line.held.size() >= kWindow) {
    line.credit_wanted = true;
    return SendOutcome::kNoCredit;
  }
  const bool lose = sending_.happens(odds_.lose), repeat = sending_.happens(odds_.repeat);
  const bool delay = sending_.happens(odds_.delay), reorder = sending_.happens(odds_.reorder);
  const double part = sending_.uniform();
  if (lose || outgoing_cut) {
    lost = std::move(frame);
    return SendOutcome::kAccepted;
  }
  Instant due = now_;
  if (delay || reorder)
    due += Duration{static_cast<int64_t>(part * static_cast<double>(odds_.delay_max.count()))};
  if (!reorder && !line.held.empty()) due = std::max(due, line.held.back().due);
  if (repeat) hold(line, due, frame);
  hold(line, due, std::move(frame));
  frame = {};
  return SendOutcome::kAccepted;
}

void FaultyTransport::State::hold(Line& line, Instant due, Frame frame) {
  auto place = line.held.end();
  while (place != line.held.begin() && std::prev(place)->due > due) --place;
  line.held.insert(place, {due, std::move(frame)});
}

void FaultyTransport::State::push_due(ConnectionId connection, Line& line,
                                      std::vector<Frame>& dropped) {
  while (!line.held.empty() && line.held.front().due <= now_) {
    const SendOutcome outcome = inner->send(connection, line.held.front().frame);
    if (outcome == SendOutcome::kNoCredit) return;  // the next pump tries again
    if (outcome == SendOutcome::kClosed) {
      for (Held& held : line.held) dropped.push_back(std::move(held.frame));
      line.held.clear();
      return;
    }
    line.held.pop_front();
  }
}

void FaultyTransport::State::pump(Instant now) {
  std::vector<Frame> dropped;
  std::vector<ConnectionId> credits;
  {
    const std::lock_guard lock(mutex_);
    now_ = std::max(now_, now);
    for (auto i = lines_.begin(); i != lines_.end();) {
      auto& [connection, line] = *i;
      push_due(connection, line, dropped);
      if (line.held.size() < kWindow && std::exchange(line.credit_wanted, false))
        credits.push_back(connection);
      i = line.held.empty() ? lines_.erase(i) : std::next(i);
    }
  }
  for (const ConnectionId connection : credits) events.on_credit(connection);
}

std::optional<Instant> FaultyTransport::State::next_due() const {
  const std::lock_guard lock(mutex_);
  std::optional<Instant> first;
  for (const auto& [connection, line] : lines_)
    if (!line.held.empty() && (!first || line.held.front().due < *first))
      first = line.held.front().due;
  return first;
}

void FaultyTransport::State::forget(ConnectionId connection) {
  Line dropped;
  const std::lock_guard lock(mutex_);
  const auto found = lines_.find(connection);
  if (found == lines_.end()) return;
  dropped = std::move(found->second);
  lines_.erase(found);
}

void FaultyTransport::State::on_lost(ConnectionId connection, Error why) {
  forget(connection);
  events.on_lost(connection, std::move(why));
}

// What a receiver makes of the frame once a bit of its encoding flipped.
Error FaultyTransport::State::damage(const Frame& frame, double where) {
  auto header = encode_frame_header(frame.header, frame.payload.view(), kDamageKey);
  if (!header.ok()) return header.error();
  SharedBuffer head = std::move(header).value();
  SharedBuffer payload = SharedBuffer::allocate(frame.payload.size());
  if (!frame.payload.empty())
    std::memcpy(payload.mutable_data(), frame.payload.data(), frame.payload.size());
  const size_t bits = 8 * (head.size() + payload.size());
  const size_t bit = std::min(bits - 1, static_cast<size_t>(where * static_cast<double>(bits)));
  std::byte* byte = bit / 8 < head.size() ? head.mutable_data() + bit / 8
                                          : payload.mutable_data() + (bit / 8 - head.size());
  *byte ^= std::byte{1} << (bit % 8);
  const auto decoded = decode_frame_header(head.view(), payload.view(), kDamageKey);
  TROUPE_CHECK(!decoded.ok(), "a 64-bit digest sees every single flipped bit");
  return decoded.error();
}

void FaultyTransport::State::on_frame(Frame frame) {
  bool cut = false, corrupt = false;
  double where = 0;
  {
    const std::lock_guard lock(mutex_);
    cut = incoming_cut;
    corrupt = receiving_.happens(odds_.corrupt);
    where = receiving_.uniform();
  }
  if (cut) return;
  if (corrupt) return events.on_garbage(damage(frame, where));
  events.on_frame(std::move(frame));
}

FaultyTransport::FaultyTransport(TransportEvents& events, uint64_t seed, FaultOdds odds)
    : state_(std::make_unique<State>(events, seed, odds)) {}
// The inner transport first: no event after it.
FaultyTransport::~FaultyTransport() {
  state_->inner.reset();
}

TransportEvents& FaultyTransport::inner_events() {
  return *state_;
}
void FaultyTransport::start(std::unique_ptr<Transport> inner) {
  state_->inner = std::move(inner);
}

std::vector<std::byte> FaultyTransport::address() const {
  return state_->inner->address();
}
Result<ConnectionId> FaultyTransport::connect(ByteSpan address) {
  return state_->inner->connect(address);
}
SendOutcome FaultyTransport::send(ConnectionId connection, Frame& frame) {
  return state_->send(connection, frame);
}
void FaultyTransport::close(ConnectionId connection) {
  state_->forget(connection);
  state_->inner->close(connection);
}
TransportFigures FaultyTransport::figures() const {
  return state_->inner->figures();
}

void FaultyTransport::pump(Instant now) {
  state_->pump(now);
}
std::optional<Instant> FaultyTransport::next_due() const {
  return state_->next_due();
}
void FaultyTransport::set_odds(FaultOdds odds) {
  state_->set(odds);
}
void FaultyTransport::cut_outgoing(bool cut) {
  state_->cut(state_->outgoing_cut, cut);
}
void FaultyTransport::cut_incoming(bool cut) {
  state_->cut(state_->incoming_cut, cut);
}

}  // namespace troupe

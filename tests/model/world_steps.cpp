// What may happen next, and which of it must be tried.
//
// A step is taken by one process (the scheduler with its ledger, the batcher, a node with its
// lives): it takes the first message of one of the process's channels, changes the process, and
// puts messages behind others. So steps of two processes come to the same in both orders. While no
// failure is left, it is enough to try the steps of one process P in a state, if nothing that the
// others do before P acts can bring P another choice: that is, if every channel to P that could
// still get a message has one already ("persistent sets": Godefroid, Partial-Order Methods for the
// Verification of Concurrent Systems, 1996). All ends are found so, and everything that a process
// can come to see; states between are fewer. While a failure is left all steps are tried.
#include <algorithm>

#include "tests/model/grants.h"
#include "tests/model/world.h"

namespace troupe::model {
namespace {

using Processes = World::Processes;
constexpr Processes kScheduler = 1, kBatcher = 2, kEverybody = UINT32_MAX;

Processes node_bit(const NodeId& node) {
  return Processes{4} << (node.back() - '0');
}

}  // namespace

std::vector<Event> World::steps(bool all) const {
  std::vector<Event> events;
  for (size_t channel = 0; channel < channels_.size(); ++channel) {
    events.push_back({EventKind::kDeliver, static_cast<uint16_t>(channel), 0});
    add_cut_short(channel, events);
  }
  if (events.empty() && (!finished() || a_feed_waits())) events.push_back({EventKind::kTime, 0, 0});
  return all || failures_left_ > 0 || events.size() < 2 ? events : independent(events);
}

// Which of the frames a stage has been sent is running when the view comes.
void World::add_cut_short(size_t channel, std::vector<Event>& events) const {
  const Channel& down = *channels_[channel];
  if (down.kind != Channel::Kind::kDown) return;
  const auto* order = std::get_if<InstallView>(down.queue.front().get());
  if (order == nullptr) return;
  for (size_t from = 0; from < channels_.size(); ++from) {
    if (channels_[from]->kind != Channel::Kind::kFrames) continue;
    const StageLife* life = find(channels_[from]->to);
    if (life == nullptr || life->node.node != down.node) continue;
    const auto& frame = std::get<Frame>(*channels_[from]->queue.front());
    const bool runs = frame.kind == FrameKind::kTokens || frame.kind == FrameKind::kActivations ||
                      frame.kind == FrameKind::kKvRows;
    if (runs && life->would_take(frame) && order->view->number > life->fence.view())
      events.push_back(
          {EventKind::kCutShort, static_cast<uint16_t>(channel), static_cast<uint16_t>(from)});
  }
}

std::vector<Event> World::failures() const {
  std::vector<Event> events;
  if (failures_left_ == 0 || finished()) return events;
  const auto add = [&](EventKind kind, size_t index) {
    events.push_back({kind, static_cast<uint16_t>(index), 0});
  };
  for (size_t life = 0; life < lives_.size(); ++life) {
    if (member(lives_[life]->node.node) == nullptr) continue;
    if (bounds_->restarts) add(EventKind::kRestart, life);
    // Without rows there is nothing that could be kept.
    if (bounds_->kept && !lives_[life]->kv.empty()) add(EventKind::kRestartKept, life);
    if (bounds_->losses) add(EventKind::kLose, life);
  }
  for (size_t node = 0; bounds_->zombies && node < members_.size(); ++node)
    if (std::any_of(lives_.begin(), lives_.end(),
                    [&](const Life& life) { return life->node.node == members_[node].node; }))
      add(EventKind::kGiveUp, node);
  for (size_t channel = 0; bounds_->lost_frames && channel < channels_.size(); ++channel)
    if (channels_[channel]->kind == Channel::Kind::kFrames) add(EventKind::kLoseFrame, channel);
  return events;
}

Processes World::receiver(const Channel& channel) const {
  switch (channel.kind) {
    case Channel::Kind::kUp:
    case Channel::Kind::kLedger:
      return kScheduler;
    case Channel::Kind::kHead:
      return kBatcher;
    case Channel::Kind::kDown:
      return node_bit(channel.node);
    case Channel::Kind::kFrames:
      break;
  }
  const StageLife* life = find(channel.to);
  return life == nullptr ? kBatcher : node_bit(life->node.node);
}

Processes World::of(const Event& event) const {
  switch (event.kind) {
    case EventKind::kDeliver:
    case EventKind::kCutShort:
    case EventKind::kLoseFrame:
      return receiver(*channels_[event.at]);
    case EventKind::kTime:
      return kEverybody;
    case EventKind::kGiveUp:
      return kScheduler | node_bit(members_[event.at].node);
    default:
      return node_bit(lives_[event.at]->node.node);
  }
}

// Every process has one queue to take from, and that stays so until the end: nothing is under way
// but frames of the view that serves, and no stage lacks anything. A refusal would be a choice, but
// then a stage would lack something (I6).
bool World::is_quiet() const {
  if (bounds_->standbys || !batcher_->serving) return false;
  if (replica_->state() != ReplicaState::kServing) return false;
  for (const Pipe& channel : channels_)
    if (channel->kind != Channel::Kind::kFrames ||
        std::get<Frame>(*channel->queue.front()).view != batcher_->fence.view())
      return false;
  for (const auto& [order, sequence] : peek<BatchingSequences>(batcher_->batching))
    if (sequence.gap) return false;
  return true;
}

// All that the scheduler can hear now are nodes' answers to a view: their order makes no
// difference, and before the last it does nothing.
bool World::only_gathers_answers() const {
  for (const Pipe& channel : channels_) {
    if (channel->kind == Channel::Kind::kLedger) return false;
    const bool up = channel->kind == Channel::Kind::kUp;
    if (!up && channel->kind != Channel::Kind::kDown) continue;
    for (const MessagePtr& message : channel->queue)
      if (up ? !std::holds_alternative<ViewInstalled>(*message)
             : std::holds_alternative<AssignAction>(*message))
        return false;
  }
  return true;
}

// From whom to whom frames may come. Only in the views that are: of a view that the batcher is told
// to start nothing is known, and can_wait_for() looks at that.
struct World::Way {
  Processes from = 0, to = 0;
  bool is_filled = false;  // there is one already: another would come behind it
};

std::vector<World::Way> World::ways() const {
  std::vector<Way> ways;
  const auto add = [&](Processes from, Processes to, Incarnation sender, Incarnation receiver) {
    const bool is_filled =
        std::any_of(channels_.begin(), channels_.end(), [&](const Pipe& channel) {
          return channel->kind == Channel::Kind::kFrames && channel->from == sender &&
                 channel->to == receiver;
        });
    ways.push_back({from, to, is_filled});
  };
  const Batcher& batcher = *batcher_;
  const bool replays = any_replay();
  for (const Life& from : lives_) {
    if (!from->view) continue;
    const Processes node = node_bit(from->node.node);
    const bool is_last = from->stage + 1 == bounds_->stages;
    if (batcher.serving && from->seated && from->fence.view() == batcher.fence.view()) {
      if (from->stage == 0 || (replays && !is_last))
        add(kBatcher, node, batcher.incarnation, from->incarnation);
      if (is_last || replays) add(node, kBatcher, from->incarnation, batcher.incarnation);
    }
    for (const Life& to : lives_)
      if (to->incarnation != from->incarnation &&
          (to->incarnation == next_of(*from) || to->stage == from->stage ||
           (bounds_->standbys && to->stage + 1 == from->stage)))
        add(node, node_bit(to->node.node), from->incarnation, to->incarnation);
  }
  return ways;
}

Incarnation World::next_of(const StageLife& life) const {
  const uint32_t next = life.stage + 1;
  return next < bounds_->stages ? life.view->seats[next].incarnation : Incarnation{};
}

// A stage lacks something, or is being given it: then more than one queue leads to some. A refusal
// would, too, but only then does a stage lack anything (I6).
bool World::any_replay() const {
  for (const auto& [order, sequence] : peek<BatchingSequences>(batcher_->batching))
    if (sequence.gap) return true;
  for (const auto& [id, in_flight] : peek<BatchingInFlight>(batcher_->batching))
    if (in_flight.batch.entry != 0 || in_flight.batch.exit != kToTheEnd) return true;
  return false;
}

// Whether nobody but the process itself can bring it another choice. Who can act without it is
// found step by step: who has been sent something, and whom those may send something.
bool World::can_wait_for(Processes process, const std::vector<Way>& ways) const {
  const bool gathers = only_gathers_answers();
  Processes told = 0, framed = 0, filled_up = 0, filled_down = 0;
  bool scheduler_awake = false, may_start = false, head_filled = false;
  for (const Pipe& channel : channels_) {
    const Processes by = receiver(*channel);
    switch (channel->kind) {
      case Channel::Kind::kUp:
      case Channel::Kind::kLedger:
        if (channel->kind == Channel::Kind::kUp) filled_up |= node_bit(channel->node);
        scheduler_awake = scheduler_awake || (!gathers && process != kScheduler);
        break;
      case Channel::Kind::kDown:
        filled_down |= by;
        told |= by & ~process;
        break;
      case Channel::Kind::kHead:
        head_filled = true;
        for (const MessagePtr& message : channel->queue)
          may_start = may_start || std::holds_alternative<StartView>(*message);
        break;
      case Channel::Kind::kFrames:
        framed |= by & ~process;
    }
  }
  // Who only gathers answers is woken up by the last one, and this process's is missing.
  const bool sleeps = process == kScheduler || (gathers && (filled_down & process) != 0);
  if (told != 0 && !sleeps) scheduler_awake = true;
  if (process == kScheduler) return (told & ~filled_up) == 0;
  if (scheduler_awake) {
    const Processes filled = filled_down | (head_filled ? kBatcher : 0);
    if ((filled & process) == 0) return false;
    may_start = true;
  }
  if (may_start && process != kBatcher) return false;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Way& way : ways) {
      if ((way.from & framed) == 0 || way.from == process) continue;
      if (way.to == process) {
        if (!way.is_filled) return false;
      } else if ((framed & way.to) == 0) {
        framed |= way.to;
        changed = true;
      }
    }
  }
  return true;
}

// The steps of one process that is enough; all if there is none.
std::vector<Event> World::independent(const std::vector<Event>& events) const {
  if (is_quiet()) return {events.front()};
  const bool gathers = only_gathers_answers();
  const std::vector<Way> all_ways = ways();
  std::vector<Event> best = events;
  Processes tried = 0;
  for (const Event& first : events) {
    const Processes process = of(first);
    // Answers can be heard in any order.
    if (process == kScheduler && gathers) return {first};
    if ((tried & process) != 0) continue;
    tried |= process;
    std::vector<Event> own;
    std::copy_if(events.begin(), events.end(), std::back_inserter(own),
                 [&](const Event& event) { return of(event) == process; });
    if (own.size() < best.size() && can_wait_for(process, all_ways)) best = std::move(own);
  }
  return best;
}

}  // namespace troupe::model

// What must hold in a state of the model, and what in it is dead.
#include <fmt/format.h>

#include <algorithm>

#include "tests/model/grants.h"
#include "tests/model/world.h"

namespace troupe::model {

bool World::can_never_be_taken(const Channel& channel) const {
  const auto& frame = std::get<Frame>(*channel.queue.front());
  if (channel.to == batcher_->incarnation)
    return !batcher_->would_take(frame) && frame.view <= batcher_->fence.view();
  const StageLife* life = find(channel.to);
  return life == nullptr || (!life->would_take(frame) && frame.view <= life->fence.view());
}

// A life on a node that was given up, in a view that all others have left behind (or were born
// after): nobody takes anything from it any more, and it will be sent nothing.
bool World::is_without_say(const StageLife& life) const {
  if (member(life.node.node) != nullptr) return false;
  ViewNumber view = life.fence.view();
  for (const Pipe& channel : channels_)
    if (channel->kind == Channel::Kind::kDown && channel->node == life.node.node)
      for (const MessagePtr& message : channel->queue)
        if (const auto* order = std::get_if<InstallView>(message.get()))
          view = std::max(view, order->view->number);
  if (batcher_->serving && batcher_->fence.view() <= view) return false;
  return std::none_of(lives_.begin(), lives_.end(), [&](const Life& other) {
    return member(other->node.node) != nullptr && other->view && other->fence.view() <= view;
  });
}

void World::forget_dead_ends() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t channel = 0; channel < channels_.size() && !changed; ++channel) {
      if (channels_[channel]->kind != Channel::Kind::kFrames) continue;
      if (!can_never_be_taken(*channels_[channel])) continue;
      take_first(channel);
      changed = true;
    }
    const auto gone = std::find_if(lives_.begin(), lives_.end(),
                                   [&](const Life& life) { return is_without_say(*life); });
    if (gone == lives_.end()) continue;
    const NodeId node = (*gone)->node.node;
    lives_.erase(gone);
    changed = true;
    if (std::any_of(lives_.begin(), lives_.end(),
                    [&](const Life& life) { return life->node.node == node; }))
      continue;
    std::erase_if(channels_, [&](const Pipe& channel) {
      return channel->kind == Channel::Kind::kDown && channel->node == node;
    });
  }
  if (replica_->history().empty()) return;
  // Text, and nobody reads it: it would only be copied.
  Replica& replica = replica_.edit();
  peek<ReplicaHistory>(replica).clear();
  for (auto& life : peek<ReplicaStages>(replica)) life.cause.clear();
}

void World::check_sender(const Frame& frame, const StageLife& life) const {
  const View& view = *life.view;
  std::vector<Incarnation> senders;
  if (life.seated) {
    senders.push_back(view.batcher);
    if (life.stage > 0) senders.push_back(view.seats[life.stage - 1].incarnation);
    if (life.stage + 1 < view.seats.size())
      senders.push_back(view.seats[life.stage + 1].incarnation);
    for (const Standby& standby : view.standbys)
      if (standby.stage == life.stage) senders.push_back(standby.seat.incarnation);
  } else {
    senders.push_back(view.seats[life.stage].incarnation);
  }
  require(frame.view == view.number && frame.receiver == life.incarnation &&
              std::find(senders.begin(), senders.end(), frame.sender) != senders.end(),
          "I2: a stage took a frame of another view or of a stranger");
}

// Views are totally ordered: two that are installed anywhere under one number are one.
void World::check_view(const View& view) const {
  for (const Life& life : lives_) {
    if (!life->view || life->view->number != view.number) continue;
    for (size_t stage = 0; stage < view.seats.size(); ++stage)
      require(life->view->seats[stage].incarnation == view.seats[stage].incarnation,
              "two views have one number");
  }
}

void World::check() const {
  check_batcher();
  if (bounds_->standbys) check_watermarks();
}

// By the stages of the gap, in the batcher's view.
uint32_t World::least_held(SequenceId sequence, const Gap& gap) const {
  uint32_t least = gap.to;
  for (uint32_t stage = gap.entry; stage <= gap.exit; ++stage) {
    const StageLife* life = find(batcher_->view->seats[stage].incarnation);
    const auto known = life == nullptr ? KvRows::const_iterator{} : life->kv.find(sequence);
    const bool holds = life != nullptr && known != life->kv.end();
    least = std::min(least, holds ? static_cast<uint32_t>(known->second.size()) : 0);
  }
  return least;
}

// I6: what the batcher believes of a stage of its view is so.
void World::check_batcher() const {
  if (!batcher_->serving) return;
  for (const Life& life : lives_) {
    if (life->fence.view() != batcher_->fence.view() || !life->seated) continue;
    const auto length_of = [&](SequenceId sequence) {
      const auto known = life->kv.find(sequence);
      return known == life->kv.end() ? 0 : known->second.size();
    };
    for (const auto& [order, sequence] : peek<BatchingSequences>(batcher_->batching)) {
      if (!sequence.id || sequence.ended) continue;
      const bool lacks =
          sequence.gap && life->stage >= sequence.gap->entry && life->stage <= sequence.gap->exit;
      require(length_of(sequence.id) >= (lacks ? sequence.gap->from : sequence.fed),
              "I6: a stage holds less of a sequence than the batcher counts on");
      if (!sequence.gap || sequence.gap->entry != life->stage + 1 || bounds_->journal_rows < 100)
        continue;
      // Of rows that all who lacked them hold by now the batcher has not heard yet.
      const uint32_t from = std::max(sequence.gap->from, least_held(sequence.id, *sequence.gap));
      const Journal::Range range = life->journal.range(sequence.id);
      require(from >= sequence.gap->to || (range.first <= from && range.end >= sequence.gap->to),
              "I6: a journal lacks rows that the batcher counts on");
    }
  }
}

// I7: what a stage takes for stored is stored.
void World::check_watermarks() const {
  for (const Life& life : lives_) {
    if (!life->feed) continue;
    const StageLife* standby = find(life->fed);
    if (standby == nullptr || standby->fence.view() != life->fence.view()) continue;
    for (const auto& [sequence, stored] : life->feed->watermarks()) {
      const auto known = standby->kv.find(sequence);
      require(stored <= (known == standby->kv.end() ? 0 : known->second.size()),
              "I7: a watermark is ahead of what the standby holds");
    }
  }
}

// For an answer of a standby that could give it.
bool World::a_feed_waits() const {
  return std::any_of(lives_.begin(), lives_.end(), [&](const Life& life) {
    if (!life->feed || !life->feed->under_way()) return false;
    const StageLife* standby = find(life->fed);
    return standby != nullptr && standby->fence.view() == life->fence.view();
  });
}

std::string World::left_behind() const {
  if (!finished()) return "requests have not ended, and nothing more will happen";
  const BatchingFigures figures = batcher_->batching.figures();
  if (figures.queued + figures.running + figures.in_flight + figures.kv_blocks_used > 0)
    return fmt::format("the batcher keeps {} running, {} in flight, {} KV blocks", figures.running,
                       figures.in_flight, figures.kv_blocks_used);
  if (!batcher_->serving) return "it does not serve";
  if (a_feed_waits()) return "a stage waits for its standby's word, and none comes";
  for (const Life& life : lives_)
    if (life->seated && life->fence.view() == batcher_->fence.view())
      for (const auto& [sequence, rows] : life->kv)
        return fmt::format("stage {} keeps {} rows of sequence {}, which has ended", life->stage,
                           rows.size(), sequence.value);
  return {};
}

std::string World::describe(const Event& event) const {
  const auto life = [&](Incarnation incarnation) {
    if (incarnation == batcher_->incarnation) return std::string("batcher");
    const StageLife* known = find(incarnation);
    return known == nullptr ? fmt::format("dead life {}", incarnation.value)
                            : fmt::format("stage {} (life {} on {})", known->stage,
                                          incarnation.value, known->node.node);
  };
  const auto message = [&](const Channel& channel) -> std::string {
    const char* kinds[] = {"frame",     "assign",          "stop",  "install", "lost", "ready",
                           "installed", "ledger's answer", "start", "stop"};
    const Message& first = *channel.queue.front();
    if (const auto* frame = std::get_if<Frame>(&first)) {
      const char* names[] = {"tokens",  "activations", "replay",    "sampled",
                             "refused", "kv rows",     "kv stored", "watermarks"};
      std::string text = fmt::format("{} {} of view {}, micro-batch {}, from {} to {}:",
                                     names[static_cast<size_t>(frame->kind)], frame->edge_sequence,
                                     frame->view.value, frame->micro_batch.value,
                                     life(frame->sender), life(frame->receiver));
      for (const FrameSegment& segment : frame->segments)
        text += fmt::format(" {}:{}+{}", segment.sequence.value, segment.position, segment.rows);
      for (const SequenceId sequence : frame->released)
        text += fmt::format(" releases {}", sequence.value);
      return text;
    }
    return fmt::format("{} ({})", kinds[first.index()], channel.node);
  };
  switch (event.kind) {
    case EventKind::kDeliver:
      return "deliver " + message(*channels_[event.at]);
    case EventKind::kCutShort:
      return "install over a running " + message(*channels_[event.from]);
    case EventKind::kGiveUp:
      return "give up " + members_[event.at].node;
    case EventKind::kLoseFrame:
      return "lose " + message(*channels_[event.at]);
    case EventKind::kTime:
      return "time passes";
    default:
      break;
  }
  const char* how = event.kind == EventKind::kRestart       ? "dies and is restarted"
                    : event.kind == EventKind::kRestartKept ? "dies, is restarted with its KV"
                                                            : "dies for good";
  return fmt::format("{} {}", life(lives_[event.at]->incarnation), how);
}

}  // namespace troupe::model

// The canonical form of a state: what decides its future, and nothing else. Incarnations are named
// by the order in which the form meets them; views count from the replica's, micro-batches from the
// batcher's newest, edges from what their receiver has seen; histories, figures and texts are left
// out. Times are left out, too: none is compared with anything before time passes, and then it
// passes beyond all of them (not_before apart, which is looked at on every step).
#include <algorithm>

#include "base/digest.h"
#include "tests/model/grants.h"
#include "tests/model/world.h"

namespace troupe::model {

class Canon {
 public:
  explicit Canon(const World& world) : world_(world), newest_(world.replica_->view().number) {
    words_.reserve(1024);
  }

  uint64_t digest() {
    add_replica(*world_.replica_);
    add(world_.ledger_);
    add(world_.held_in_);
    for (const auto& [stage, held] : world_.held_) add(stage, held);
    add(world_.failures_left_);
    add_batcher(*world_.batcher_);
    add_lives();
    add_channels();
    return digest64(std::as_bytes(std::span(words_)));
  }

 private:
  template <class Number>
  void add(Number number) requires std::is_integral_v<Number> || std::is_enum_v<Number> {
    words_.push_back(static_cast<uint64_t>(number));
  }
  void add(ViewNumber view) { add(newest_.value - view.value); }
  void add(Incarnation life) { add(name_of(life)); }
  void add(MicroBatchId id) {
    add(peek<BatchingLastBatch>(world_.batcher_->batching).value - id.value);
  }
  void add(const NodeId& node) { add(node.empty() ? 0 : static_cast<uint64_t>(node.back())); }
  void add(uint32_t stage, const StageHoldings& held) {
    add(stage);
    add(held.size());
    for (const auto& [sequence, range] : held) {
      add(sequence.value);
      add(range.length);
      add(range.journal_first);
      add(range.journal_end);
    }
  }
  uint64_t name_of(Incarnation life) {
    if (!life) return 0;
    const auto known = std::find(names_.begin(), names_.end(), life);
    if (known != names_.end()) return static_cast<uint64_t>(known - names_.begin()) + 1;
    names_.push_back(life);
    return names_.size();
  }
  // What tells in a sequence number is how far it is ahead of what its receiver has seen.
  uint64_t ahead(Incarnation sender, Incarnation receiver, ViewNumber view, uint64_t number) const {
    const StageLife* life = world_.find(receiver);
    const ViewFence* fence = receiver == world_.batcher_->incarnation ? &world_.batcher_->fence
                             : life != nullptr                        ? &life->fence
                                                                      : nullptr;
    if (fence == nullptr) return 0;
    const auto& seen = peek<FenceLast>(*fence);
    const auto known = seen.find(sender);
    if (fence->view() != view || known == seen.end()) return number;
    return number - known->second;
  }

  void add_view(const View& view) {
    add(view.number);
    for (const Seat& seat : view.seats) add(seat.incarnation);
    add(view.standbys.size());
    for (const Standby& standby : view.standbys) {
      add(standby.stage);
      add(standby.seat.incarnation);
    }
  }

  template <class Stages>
  void add_stages(const Stages& stages) {
    for (const auto& life : stages) {
      add(life.phase);
      add(life.node);
      if (life.ready()) add(life.seat.incarnation);
      add(life.installed);
      add(life.not_before > world_.now_);
    }
  }
  template <class Places>
  void add_places(const Places& places) {
    add(places.size());
    for (const auto& place : places) {
      add(place.stage);
      add(place.node);
    }
  }

  void add_replica(const Replica& replica) {
    add(replica.state());
    add(peek<ReplicaLast>(replica));
    add(peek<ReplicaCommitted>(replica));
    add_view(replica.view());
    for (const bool alive : peek<ReplicaSeatAlive>(replica)) add(alive);
    for (const NodeFacts& facts : peek<ReplicaNodes>(replica)) add(facts.node);
    add_stages(peek<ReplicaStages>(replica));
    add_stages(peek<ReplicaStandbys>(replica));
    add_places(peek<ReplicaBarred>(replica));
    add_places(peek<ReplicaAvoided>(replica));
    add_places(peek<ReplicaLeftovers>(replica));
    add(peek<ReplicaInstallRepeated>(replica));
    add(peek<ReplicaPlacedOnce>(replica));
    add(peek<ReplicaStuck>(replica).empty());
    // Of the dead only those matter of which something may still be heard.
    for (const auto& channel : world_.channels_)
      for (const MessagePtr& message : channel->queue)
        if (const auto* ready = std::get_if<StageReady>(message.get())) {
          const auto& dead = peek<ReplicaDead>(replica);
          add(std::find(dead.begin(), dead.end(), ready->seat.incarnation) != dead.end());
        }
  }

  void add_sent(Incarnation sender, ViewNumber view, const std::map<Incarnation, uint64_t>& sent) {
    for (const auto& [receiver, newest] : sent) {
      const bool lives =
          receiver == world_.batcher_->incarnation || world_.find(receiver) != nullptr;
      if (!lives) continue;
      add(receiver);
      add(ahead(sender, receiver, view, newest));
    }
  }

  void add_batcher(const Batcher& batcher) {
    add(batcher.serving);
    add(batcher.fence.view());
    if (batcher.view) add_view(*batcher.view);
    add_sent(batcher.incarnation, batcher.fence.view(), batcher.sent);
    const Batching& batching = batcher.batching;
    add(peek<BatchingHasView>(batching));
    for (const auto& [order, sequence] : peek<BatchingSequences>(batching)) {
      add(order);
      add(sequence.log.size());
      add(sequence.id.value);
      add(sequence.fed);
      add(sequence.refusals);
      add(sequence.losses);
      add(sequence.losses == 0 ? 0 : sequence.lost_stage);
      add(sequence.gap.has_value());
      if (sequence.gap) {
        add(sequence.gap->from);
        add(sequence.gap->to);
        add(sequence.gap->entry);
        add(sequence.gap->exit);
      }
      add(sequence.in_flight);
      add(sequence.preempted);
      add(sequence.ended);
      add(sequence.shown);
      add(sequence.done.has_value());
      add(peek<BatchingQueue>(batching).contains(order));
      add(peek<BatchingRunning>(batching).contains(order));
      add(peek<BatchingLeaving>(batching).contains(order));
    }
    for (const SequenceId sequence : peek<BatchingReleased>(batching)) add(sequence.value);
    // What is in flight is planned from the sequences: its place is enough.
    for (const auto& [id, in_flight] : peek<BatchingInFlight>(batching)) {
      add(id);
      add(in_flight.batch.entry);
      add(in_flight.batch.exit);
      for (const PlannedSegment& segment : in_flight.batch.segments) {
        add(segment.sequence.value);
        add(segment.position);
        add(segment.tokens.size());
      }
      for (const SequenceId sequence : in_flight.batch.released) add(sequence.value);
    }
    for (const uint32_t shown : batcher.shown) add(shown);
  }

  void add_lives() {
    std::vector<const StageLife*> lives;
    for (const auto& life : world_.lives_) lives.push_back(&*life);
    // By stage; of one stage the known ones first, in the order of their names.
    const auto key = [&](const StageLife* life) {
      const auto known = std::find(names_.begin(), names_.end(), life->incarnation);
      return std::tuple{life->stage, known - names_.begin(), life->incarnation};
    };
    std::sort(lives.begin(), lives.end(),
              [&](const StageLife* a, const StageLife* b) { return key(a) < key(b); });
    for (const StageLife* life : lives) add_life(*life);
  }

  void add_life(const StageLife& life) {
    add(life.stage);
    add(life.incarnation);
    add(life.node.node);
    add(world_.member(life.node.node) != nullptr);
    add(life.fence.view());
    if (life.view) add_view(*life.view);
    add(life.seated);
    add_sent(life.incarnation, life.fence.view(), life.sent);
    for (const auto& [sequence, rows] : life.kv) {
      add(sequence.value);
      add(rows.size());
    }
    add(life.stage, life.claimed);
    for (uint64_t sequence = 1; sequence <= world_.bounds_->requests; ++sequence) {
      const Journal::Range range = life.journal.range(SequenceId{sequence});
      add(range.first);
      add(range.end);
    }
    add(life.fed);
    if (!life.feed) return;
    add(life.feed->under_way());
    add_lengths(life.feed->watermarks());
    add_lengths(peek<WatermarksDownstream>(life.watermarks));
    add_lengths(peek<WatermarksTold>(life.watermarks));
  }

  void add_lengths(const std::map<SequenceId, uint32_t>& lengths) {
    add(lengths.size());
    for (const auto& [sequence, length] : lengths) {
      add(sequence.value);
      add(length);
    }
  }

  void add_channels() {
    std::vector<const Channel*> channels;
    for (const auto& channel : world_.channels_) {
      name_of(channel->from);
      name_of(channel->to);
      channels.push_back(&*channel);
    }
    const auto key = [&](const Channel* channel) {
      return std::tuple{channel->kind, name_of(channel->from), name_of(channel->to), channel->node};
    };
    std::sort(channels.begin(), channels.end(),
              [&](const Channel* a, const Channel* b) { return key(a) < key(b); });
    for (const Channel* channel : channels) {
      add(channel->kind);
      add(channel->from);
      add(channel->to);
      add(channel->node);
      add(channel->queue.size());
      for (const MessagePtr& message : channel->queue) {
        add(message->index());
        std::visit([&](const auto& one) { add_message(one); }, *message);
      }
    }
  }

  void add_message(const Frame& frame) {
    add(frame.kind);
    add(frame.view);
    add(ahead(frame.sender, frame.receiver, frame.view, frame.edge_sequence));
    if (frame.micro_batch) add(frame.micro_batch);
    add(frame.exit_stage);
    for (const FrameSegment& segment : frame.segments) {
      add(segment.sequence.value);
      add(segment.position);
      add(segment.rows);
      add(segment.sample);
      // The rows are those of an undisturbed run: whoever wrote them was checked. Tokens, too.
    }
    for (const SequenceId sequence : frame.released) add(sequence.value);
  }
  void add_message(const AssignAction& assign) {
    add(assign.stage);
    add(assign.standby);
  }
  void add_message(const StopAction& stop) { add(stop.stage); }
  void add_message(const InstallView& install) { add_view(*install.view); }
  void add_message(const StageLost& lost) {
    add(lost.stage);
    add(lost.incarnation);
    add(lost.restarting);
  }
  void add_message(const StageReady& ready) {
    add(ready.stage);
    add(ready.seat.incarnation);
  }
  void add_message(const ViewInstalled& installed) {
    add(installed.view);
    for (const uint32_t stage : installed.stages) add(stage);
    for (const auto& [stage, held] : installed.held) add(stage, held);
  }
  void add_message(const SwapAnswer& answer) {
    add(answer.asked);
    add(answer.newest);
    add(answer.committed);
  }
  void add_message(const StartView& start) {
    add_view(*start.view);
    for (const auto& [stage, held] : start.held) add(stage, held);
  }
  void add_message(const StopView& stop) { add(stop.crashed ? *stop.crashed + 1 : 0); }

  const World& world_;
  const ViewNumber newest_;
  std::vector<uint64_t> words_;
  std::vector<Incarnation> names_;
};

uint64_t World::digest() const {
  return Canon(*this).digest();
}

}  // namespace troupe::model

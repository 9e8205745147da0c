// One state of the model, and the steps out of it.
//
// Processes: a scheduler (the real Replica) with its ledger, a batcher (the real Batching), nodes,
// and lives of stages on them. Between two of them messages keep their order; whichever of them
// comes first is everybody's choice. A step is one message delivered and all that its receiver does
// at once, or one failure, or (only when nothing else can happen) time that passes beyond every
// deadline.
//
// What is left out, and why nothing is lost by it:
//   - A frame that its receiver's fence will not let in now or ever (old view, dead receiver, wrong
//     sender) is taken away at once: delivering it changes nothing, so its place among the other
//     steps does not matter. Whether the fence is right about that is checked for every frame that
//     it does let in (I2).
//   - A stage runs a frame in the step that delivers it. Threads can tell this apart only if
//     something happens to the stage meanwhile: a view that comes is a step of its own (cut short),
//     and a death is the same as one before (its memory is gone) or after.
//   - A life that is restarted is up at once, and a loaded one, too: nobody can know before they
//     hear of it, and that may be as late as any message.
// What is done in one order only is said in world_steps.cpp and search.cpp.
#pragma once

#include <string>
#include <vector>

#include "tests/model/batcher.h"
#include "tests/model/shared.h"
#include "tests/model/stage_life.h"

namespace troupe::model {

enum class EventKind : uint8_t {
  kDeliver,      // the first message of a channel
  kCutShort,     // a view is installed while the life runs the first frame of a channel
  kRestart,      // a life dies, its successor is up
  kRestartKept,  // … and has its KV cache
  kLose,         // a life dies for good
  kGiveUp,       // the scheduler gives a node up
  kLoseFrame,    // the first frame of a channel is lost
  kTime,
};

struct Event {
  EventKind kind = EventKind::kTime;
  uint16_t at = 0;    // channel, life or node
  uint16_t from = 0;  // of kCutShort: the channel of the frame
};

struct Channel {
  enum class Kind : uint8_t { kFrames, kDown, kUp, kLedger, kHead };
  Kind kind = Kind::kFrames;
  Incarnation from, to;  // of kFrames
  NodeId node;           // of kDown and kUp
  std::vector<MessagePtr> queue;
};

class World {
 public:
  // Serving, with all requests queued; or with nothing placed yet.
  World(const Bounds& bounds, const Truth& truth, bool from_nothing);

  // What may happen without a failure. While no failure is left, only as many steps as are needed
  // to come to every end (see independent()), unless `all`.
  std::vector<Event> steps(bool all) const;
  std::vector<Event> failures() const;
  // Processes as bits: the scheduler, the batcher, nodes.
  using Processes = uint32_t;
  // Who takes a step; whom a failure touches. Steps of others come to the same before and after it.
  Processes of(const Event& event) const;
  // Throws a Violation if a check fails on the way or in the state it leads to.
  void apply(const Event& event);
  std::string describe(const Event& event) const;
  // All requests have their tokens.
  bool finished() const { return batcher_->finished(); }
  // For a state without events: what it left undone; empty if nothing.
  std::string left_behind() const;
  uint32_t failures_left() const { return failures_left_; }

  // Equal exactly if every future is; names and numbers that only history explains are left out.
  uint64_t digest() const;

 private:
  friend class Canon;
  using Life = Shared<StageLife>;
  using Pipe = Shared<Channel>;

  // world.cpp: messages and failures
  void deliver(size_t channel);
  void deliver_frame(const Frame& frame);
  void deliver_down(const NodeId& node, const Message& message);
  void deliver_up(const NodeId& node, const Message& message);
  void install(const NodeId& node, const ViewPtr& view);
  void crash(size_t life, EventKind how);
  void give_up(size_t node);
  void pass_time();
  void carry_out(const ReplicaActions& actions);
  void propose(const View& view);
  void post(Frames frames);
  void post(Channel key, Message message);
  MessagePtr take_first(size_t channel);
  size_t start_life(uint32_t stage, const NodeFacts& node);
  Seat seat_of(const StageLife& life) const;
  StageLife* find(Incarnation incarnation);
  const StageLife* find(Incarnation incarnation) const;
  const NodeFacts* member(const NodeId& node) const;
  void settle_down();
  void forget_dead_ends();

  // world_steps.cpp: what may happen
  void add_cut_short(size_t channel, std::vector<Event>& events) const;
  Processes receiver(const Channel& channel) const;
  std::vector<Event> independent(const std::vector<Event>& events) const;
  bool is_quiet() const;
  bool only_gathers_answers() const;
  bool any_replay() const;
  Incarnation next_of(const StageLife& life) const;
  struct Way;
  std::vector<Way> ways() const;
  bool can_wait_for(Processes process, const std::vector<Way>& ways) const;

  // world_checks.cpp: what must hold
  bool can_never_be_taken(const Channel& channel) const;
  bool is_without_say(const StageLife& life) const;
  void check() const;
  void check_sender(const Frame& frame, const StageLife& life) const;
  void check_view(const View& view) const;
  void check_batcher() const;
  void check_watermarks() const;
  bool a_feed_waits() const;
  uint32_t least_held(SequenceId sequence, const Gap& gap) const;

  const Bounds* bounds_;
  const Truth* truth_;
  Shared<Replica> replica_;
  Shared<Batcher> batcher_;
  std::vector<Life> lives_;
  std::vector<Pipe> channels_;  // none is empty
  std::vector<NodeFacts> members_;
  std::map<uint32_t, StageHoldings> held_;  // of the view that is being installed
  ViewNumber held_in_;
  ViewNumber ledger_;
  uint64_t last_incarnation_ = 1;
  uint32_t failures_left_ = 0;
  Instant now_{1h};
};

}  // namespace troupe::model

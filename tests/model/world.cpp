#include "tests/model/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace troupe::model {
namespace {

const Incarnation kBatcher{1};
const std::string kWhy = "it died";
constexpr Duration kBeyondDeadlines = 200s;

ReplicaSpec spec_of(const Bounds& bounds) {
  ReplicaSpec spec;
  spec.deployment = "model";
  spec.layers = bounds.stages;
  spec.layer_bytes = 1;
  spec.stages = bounds.stages;
  spec.nodes_expected = bounds.nodes;
  if (bounds.standbys) spec.standby = StandbyPolicy::kKv;
  return spec;
}

Channel frames_between(Incarnation from, Incarnation to) {
  return {Channel::Kind::kFrames, from, to, {}, {}};
}
Channel to_node(const NodeId& node) {
  return {Channel::Kind::kDown, {}, {}, node, {}};
}
Channel from_node(const NodeId& node) {
  return {Channel::Kind::kUp, {}, {}, node, {}};
}

}  // namespace

World::World(const Bounds& bounds, const Truth& truth, bool from_nothing)
    : bounds_(&bounds),
      truth_(&truth),
      replica_(Replica(spec_of(bounds), ViewNumber{}, kBatcher, {})),
      batcher_(Batcher(bounds, truth, kBatcher)),
      failures_left_(bounds.failures) {
  for (uint32_t node = 0; node < bounds.nodes; ++node)
    members_.push_back({fmt::format("n{}", node), Incarnation{1}, 1 << 20, 0, false});
  // Another scheduler has written into the ledger before: the first proposal finds a conflict.
  ledger_ = ViewNumber{2};
  carry_out(replica_.edit().on_nodes(members_, "start", now_));
  if (!from_nothing) settle_down();
}

// Every message of scheduler and nodes is delivered, and no frame.
void World::settle_down() {
  for (;;) {
    const auto next = std::find_if(channels_.begin(), channels_.end(), [](const Pipe& one) {
      return one->kind != Channel::Kind::kFrames;
    });
    if (next == channels_.end()) break;
    deliver(static_cast<size_t>(next - channels_.begin()));
  }
  TROUPE_CHECK(batcher_->serving, "without failures it serves");
}

void World::apply(const Event& event) {
  switch (event.kind) {
    case EventKind::kDeliver:
      deliver(event.at);
      break;
    case EventKind::kCutShort: {
      StageLife& life = *find(channels_[event.from]->to);
      // The frame's channel may end with it, and those behind it move up.
      const bool ends = channels_[event.from]->queue.size() == 1;
      const MessagePtr message = take_first(event.from);
      const auto& frame = std::get<Frame>(*message);
      check_sender(frame, life);
      life.run_cut_short(frame);
      deliver(event.at - (ends && event.from < event.at ? 1 : 0));
      break;
    }
    case EventKind::kGiveUp:
      give_up(event.at);
      break;
    case EventKind::kLoseFrame:
      --failures_left_;
      take_first(event.at);
      break;
    case EventKind::kTime:
      pass_time();
      break;
    default:
      crash(event.at, event.kind);
  }
  forget_dead_ends();
  check();
}

MessagePtr World::take_first(size_t channel) {
  MessagePtr message = channels_[channel]->queue.front();
  if (channels_[channel]->queue.size() == 1) {
    channels_.erase(channels_.begin() + static_cast<std::ptrdiff_t>(channel));
  } else {
    std::vector<MessagePtr>& queue = channels_[channel].edit().queue;
    queue.erase(queue.begin());
  }
  return message;
}

void World::deliver(size_t channel) {
  const Channel::Kind kind = channels_[channel]->kind;
  const NodeId node = channels_[channel]->node;
  const MessagePtr first = take_first(channel);
  const Message& message = *first;
  switch (kind) {
    case Channel::Kind::kFrames:
      return deliver_frame(std::get<Frame>(message));
    case Channel::Kind::kDown:
      return deliver_down(node, message);
    case Channel::Kind::kUp:
      return deliver_up(node, message);
    case Channel::Kind::kLedger: {
      const auto& answer = std::get<SwapAnswer>(message);
      Replica& replica = replica_.edit();
      return carry_out(answer.committed ? replica.on_committed(answer.asked, now_)
                                        : replica.on_conflict(answer.newest, now_));
    }
    case Channel::Kind::kHead: {
      Frames out;
      if (const auto* start = std::get_if<StartView>(&message))
        batcher_.edit().start(*start, now_, out);
      else
        batcher_.edit().stop(std::get<StopView>(message));
      return post(std::move(out));
    }
  }
}

void World::deliver_frame(const Frame& frame) {
  Frames out;
  if (frame.receiver == kBatcher) {
    if (batcher_->would_take(frame)) {
      const auto& seats = batcher_->view->seats;
      require(frame.view == batcher_->view->number &&
                  std::any_of(seats.begin(), seats.end(),
                              [&](const Seat& seat) { return seat.incarnation == frame.sender; }),
              "I2: the batcher took a frame of another view or of a stranger");
      batcher_.edit().take(frame, now_, out);
    }
  } else if (std::as_const(*this).find(frame.receiver)->would_take(frame)) {
    StageLife& life = *find(frame.receiver);
    check_sender(frame, life);
    life.take(frame, out);
  }
  post(std::move(out));
}

void World::deliver_down(const NodeId& node, const Message& message) {
  const auto lives_there = [&](uint32_t stage) {
    return std::find_if(lives_.begin(), lives_.end(), [&](const Life& life) {
      return life->node.node == node && life->stage == stage;
    });
  };
  if (const auto* assign = std::get_if<AssignAction>(&message)) {
    // What is there already is what comes up ready.
    const auto known = lives_there(assign->stage);
    const NodeFacts facts{node, assign->node_incarnation, 0, 0, false};
    const size_t life = known != lives_.end() ? static_cast<size_t>(known - lives_.begin())
                                              : start_life(assign->stage, facts);
    if (member(node) != nullptr)
      post(from_node(node), StageReady{assign->stage, seat_of(*lives_[life])});
  } else if (const auto* stop = std::get_if<StopAction>(&message)) {
    const auto known = lives_there(stop->stage);
    if (known != lives_.end()) lives_.erase(known);
  } else {
    install(node, std::get<InstallView>(message).view);
  }
}

// As a supervisor does: lives that the view does not name are passed over, and the answer counts
// for all seats of the node.
void World::install(const NodeId& node, const ViewPtr& view) {
  check_view(*view);
  ViewInstalled answer{view->number, {}, {}};
  for (uint32_t stage = 0; stage < view->seats.size(); ++stage)
    if (view->seats[stage].node == node) answer.stages.push_back(stage);
  for (Life& life : lives_) {
    if (life->node.node != node) continue;
    const bool seated = view->seats[life->stage].incarnation == life->incarnation;
    if (!life.edit().install(view)) {
      if (seated) return;  // it has a newer one
      continue;
    }
    if (seated) answer.held[life->stage] = life->held();
  }
  if (!answer.stages.empty() && member(node) != nullptr) post(from_node(node), answer);
}

void World::deliver_up(const NodeId& node, const Message& message) {
  Replica& replica = replica_.edit();
  if (const auto* lost = std::get_if<StageLost>(&message))
    return carry_out(
        replica.on_stage_lost(lost->stage, node, lost->incarnation, lost->restarting, kWhy, now_));
  if (const auto* ready = std::get_if<StageReady>(&message))
    return carry_out(replica.on_stage_ready(ready->stage, ready->seat, now_));
  const auto& installed = std::get<ViewInstalled>(message);
  if (installed.view >= held_in_) {
    if (installed.view > held_in_) held_.clear();
    held_in_ = installed.view;
    for (const auto& [stage, held] : installed.held) held_.insert_or_assign(stage, held);
  }
  for (const uint32_t stage : installed.stages)
    carry_out(replica_.edit().on_installed(stage, installed.view, now_));
}

void World::carry_out(const ReplicaActions& actions) {
  for (const ReplicaAction& action : actions) {
    if (const auto* assign = std::get_if<AssignAction>(&action)) {
      post(to_node(assign->node), *assign);
    } else if (const auto* stop = std::get_if<StopAction>(&action)) {
      post(to_node(stop->node), *stop);
    } else if (const auto* proposal = std::get_if<ProposeAction>(&action)) {
      propose(proposal->view);
    } else if (const auto* order = std::get_if<InstallAction>(&action)) {
      const auto view = std::make_shared<const View>(order->view);
      std::vector<NodeId> nodes;
      for (const Standby& standby : view->standbys) nodes.push_back(standby.seat.node);
      for (const Seat& seat : view->seats) nodes.push_back(seat.node);
      std::sort(nodes.begin(), nodes.end());
      nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
      for (const NodeId& node : nodes)
        if (member(node) != nullptr) post(to_node(node), InstallView{view});
    } else if (const auto* serve = std::get_if<ServeAction>(&action)) {
      StartView start{std::make_shared<const View>(serve->view), {}};
      if (held_in_ == serve->view.number) start.held = held_;
      held_.clear();
      post(Channel{Channel::Kind::kHead, {}, {}, {}, {}}, std::move(start));
    } else if (const auto* pause = std::get_if<PauseAction>(&action)) {
      post(Channel{Channel::Kind::kHead, {}, {}, {}, {}}, StopView{pause->crashed});
    } else {
      throw Violation("the replica is stuck although there is room");
    }
  }
}

// The ledger's compare-and-swap. It has one writer here, so when it is executed is not told apart
// from when its answer is heard.
void World::propose(const View& view) {
  const bool committed = ledger_.value + 1 == view.number.value;
  if (committed) ledger_ = view.number;
  post(Channel{Channel::Kind::kLedger, {}, {}, {}, {}},
       SwapAnswer{view.number, ledger_, committed});
}

void World::post(Frames frames) {
  for (Frame& frame : frames) post(frames_between(frame.sender, frame.receiver), std::move(frame));
}

void World::post(Channel key, Message message) {
  const auto same = [&](const Pipe& one) {
    return one->kind == key.kind && one->from == key.from && one->to == key.to &&
           one->node == key.node;
  };
  auto channel = std::find_if(channels_.begin(), channels_.end(), same);
  if (channel == channels_.end()) channel = channels_.insert(channels_.end(), Pipe(std::move(key)));
  channel->edit().queue.push_back(std::make_shared<const Message>(std::move(message)));
}

size_t World::start_life(uint32_t stage, const NodeFacts& node) {
  StageLife life(*bounds_, *truth_, stage, Incarnation{++last_incarnation_});
  life.node = node;
  lives_.emplace_back(std::move(life));
  return lives_.size() - 1;
}

Seat World::seat_of(const StageLife& life) const {
  return {.node = life.node.node,
          .node_incarnation = life.node.incarnation,
          .incarnation = life.incarnation,
          .layers = {life.stage, life.stage + 1},
          .data_address = {}};
}

void World::crash(size_t index, EventKind how) {
  --failures_left_;
  const StageLife dead = *lives_[index];
  lives_.erase(lives_.begin() + static_cast<std::ptrdiff_t>(index));
  const bool restarting = how != EventKind::kLose;
  if (bounds_->plant != Plant::kLostNews)
    post(from_node(dead.node.node), StageLost{dead.stage, dead.incarnation, restarting});
  if (!restarting) return;
  const size_t successor = start_life(dead.stage, dead.node);
  if (how == EventKind::kRestartKept) lives_[successor].edit().kv = dead.kv;
  if (bounds_->plant == Plant::kClaimsAll) lives_[successor].edit().claimed = dead.held();
  if (bounds_->plant != Plant::kLostNews)
    post(from_node(dead.node.node), StageReady{dead.stage, seat_of(*lives_[successor])});
}

// It may live: then it goes on with what it has, and what it is still sent.
void World::give_up(size_t node) {
  --failures_left_;
  const NodeId gone = members_[node].node;
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(node));
  std::erase_if(channels_, [&](const Pipe& one) {
    return one->kind == Channel::Kind::kUp && one->node == gone;
  });
  carry_out(replica_.edit().on_nodes(members_, "silence", now_));
}

void World::pass_time() {
  now_ += kBeyondDeadlines;
  carry_out(replica_.edit().on_tick(now_));
  Frames out;
  batcher_.edit().tick(now_, out);
  for (Life& life : lives_)
    if (member(life->node.node) != nullptr && life->feed && life->feed->under_way())
      life.edit().feed_again(out);
  post(std::move(out));
}

StageLife* World::find(Incarnation incarnation) {
  for (Life& life : lives_)
    if (life->incarnation == incarnation) return &life.edit();
  return nullptr;
}

const StageLife* World::find(Incarnation incarnation) const {
  for (const Life& life : lives_)
    if (life->incarnation == incarnation) return &*life;
  return nullptr;
}

const NodeFacts* World::member(const NodeId& node) const {
  for (const NodeFacts& facts : members_)
    if (facts.node == node) return &facts;
  return nullptr;
}

}  // namespace troupe::model

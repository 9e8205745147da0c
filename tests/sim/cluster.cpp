#include "tests/sim/cluster.h"

#include <fmt/format.h>
#include <caf/send.hpp>

#include <algorithm>

#include "tests/sim/node_clock.h"

namespace troupe::sim {
namespace {

constexpr Duration kBeat = 25ms;

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : Stagehand(options.seed), options_(options), draw_(options.seed * 7919 + 1) {
  hub_ = std::make_unique<LoopbackHub>(LoopbackPump::kByHand);
  nodes_.resize(options.nodes);
  for (uint32_t i = 0; i < options.nodes; ++i) nodes_[i].id = fmt::format("node-{}", i + 1);
  net_ = std::make_unique<ControlNet>(
      options.nodes, draw_(),
      ControlNet::Hooks{
          .now = [this] { return now(); },
          .after = [this](Duration delay,
                          std::function<void()> action) { after(delay, std::move(action)); },
          .node =
              [this](uint32_t index) {
                const Node& node = nodes_[index];
                return NetNode{node.id, node.life, node.paused, node.peer, node.health, node.ahead};
              },
          .progress = [this](uint32_t index) { return progress_of(index); },
          .seen = [this](const ControlMessage& message) { saw(message); }});
  for (uint32_t i = 0; i < options.nodes; ++i) start(i);
  after(kBeat, [this] { beat(); });
}

Cluster::~Cluster() {
  ending_ = true;
  ledger_ = nullptr;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    forget_actors(i);
    nodes_[i].life = 0;
    nodes_[i].paused = false;
  }
  end_all();
  for (Node& node : nodes_)
    if (node.router) node.router->detach();
}

void Cluster::after(Duration delay, std::function<void()> action) {
  events_.emplace(now() + delay, std::move(action));
}

void Cluster::on_node(uint32_t index, uint64_t life, Duration delay, std::function<void()> action) {
  after(delay, [this, index, life, action = std::move(action)] {
    Node& node = nodes_[index];
    if (node.life != life) return;
    if (node.paused)
      node.waiting.push_back(action);
    else
      action();
  });
}

// What a paused node and the stalled ledger have to do waits.
bool Cluster::may_run(caf::resumable* job) const {
  const auto* actor = dynamic_cast<const caf::scheduled_actor*>(job);
  if (actor == nullptr) return true;
  const auto owner = owners_.find(actor->id());
  if (owner == owners_.end()) return true;
  return owner->second == kDisk ? !ledger_stalled_ : !nodes_[owner->second].paused;
}

bool Cluster::run_job() {
  auto& jobs = scheduler().jobs;
  if (jobs.empty()) return false;
  const bool anybody_waits =
      ledger_stalled_ ||
      std::any_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.paused; });
  size_t chosen = draw_() % jobs.size();
  if (anybody_waits) {
    std::vector<size_t> runnable;
    for (size_t i = 0; i < jobs.size(); ++i)
      if (may_run(jobs[i])) runnable.push_back(i);
    if (runnable.empty()) return false;
    chosen = runnable[draw_() % runnable.size()];
  }
  const auto place = jobs.begin() + static_cast<std::ptrdiff_t>(chosen);
  std::rotate(jobs.begin(), place, place + 1);
  run_in_its_time(jobs.front());
  return true;
}

void Cluster::run_in_its_time(caf::resumable* job) {
  const bool any_ahead = std::any_of(nodes_.begin(), nodes_.end(),
                                     [](const Node& node) { return node.ahead != Duration{0}; });
  const auto* actor = any_ahead ? dynamic_cast<const caf::scheduled_actor*>(job) : nullptr;
  const auto owner = actor == nullptr ? owners_.end() : owners_.find(actor->id());
  if (owner == owners_.end() || owner->second == kDisk ||
      nodes_[owner->second].ahead == Duration{0}) {
    scheduler().try_run_once();
    return;
  }
  const NodeClock its_time(scheduler().clock(), actor->id(), nodes_[owner->second].ahead,
                           shown_ahead_);
  scheduler().try_run_once();
}

bool Cluster::pump() {
  for (Node& node : nodes_)
    if (node.transport) node.transport->faulty().pump(now());
  return hub_->pump(1) > 0;
}

// Until nobody has anything to do at this instant.
void Cluster::work() {
  while (run_job() || pump()) {
  }
}

bool Cluster::run(Duration limit, const std::function<bool()>& done) {
  const Instant end = now() + limit;
  auto& clock = scheduler().clock();
  for (;;) {
    work();
    if (done() || !witness_->first_broken().empty()) return true;
    Instant next = end;
    if (!events_.empty()) next = std::min(next, events_.begin()->first);
    for (const Node& node : nodes_)
      if (node.transport)
        if (const auto due = node.transport->faulty().next_due())
          next = std::min(next, std::max(*due, now()));
    const bool timer = !clock.schedule().empty() && clock.schedule().begin()->first <= next;
    if (!timer && next >= end) return false;
    if (timer) {
      scheduler().trigger_timeout();
      continue;
    }
    clock.current_time = std::max(clock.current_time, caf::actor_clock::time_point{next});
    while (!events_.empty() && events_.begin()->first <= now()) {
      const auto action = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      action();
    }
  }
}

void Cluster::beat() {
  if (ending_) return;
  net_->beat();
  after(kBeat, [this] { beat(); });
}

std::vector<Progress> Cluster::progress_of(uint32_t index) {
  std::vector<Progress> progress;
  std::erase_if(nodes_[index].computes, [&](const auto& entry) {
    const auto figures = entry.second.lock();
    if (figures) progress.push_back({entry.first, figures->started, figures->finished});
    return !figures;
  });
  return progress;
}

void Cluster::saw(const ControlMessage& message) {
  if (const auto* install = std::get_if<InstallView>(&message.body)) {
    witness_->told(install->view);
    for (Node& node : nodes_)
      if (node.transport) node.transport->pretend(install->view);
  }
}

void Cluster::crash(uint32_t index, Duration down) {
  Node& node = nodes_[index];
  if (node.life == 0) return;
  const uint64_t life = std::exchange(node.life, 0);
  node.paused = false;
  node.waiting.clear();
  node.computes.clear();
  node.slow = 1;
  node.ahead = Duration{0};
  net_->crashed(index, life);
  forget_actors(index);
  node.router->detach();
  node.transport = nullptr;
  after(down, [this, index] {
    if (!ending_ && nodes_[index].life == 0) start(index);
  });
}

void Cluster::hang(uint32_t stage) {
  const View* view = witness_->newest();
  if (view == nullptr || stage >= view->seats.size()) return;
  if (view->seats[stage].node != nodes_[0].id) hanging_.insert(view->seats[stage].incarnation);
}

void Cluster::pause(uint32_t index, bool paused) {
  Node& node = nodes_[index];
  if (node.life == 0 || node.paused == paused) return;
  node.paused = paused;
  node.transport->pause(paused);
  if (paused) return;
  for (const auto& action : std::exchange(node.waiting, {})) action();
}

void Cluster::leap(uint32_t index, Duration by) {
  Node& node = nodes_[index];
  if (node.life == 0) return;
  node.ahead += by;
  for (const auto& [actor, owner] : owners_)
    if (owner == index) move_timers(scheduler().clock(), actor, -by);
}

bool Cluster::recovering() const {
  const View* view = witness_->newest();
  if (view == nullptr) return false;
  return witness_->recovering() ||
         std::any_of(view->seats.begin(), view->seats.end(), [this](const Seat& seat) {
           return std::none_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
             return node.id == seat.node && node.life == seat.node_incarnation.value;
           });
         });
}

void Cluster::rival_swap() {
  if (witness_->newest() == nullptr) return;
  View view = *witness_->newest();
  ++view.number.value;
  view.batcher = Incarnation{++last_life_};
  caf::anon_send(ledger_, SwapView{view});
}

void Cluster::apply_cut(uint32_t index) {
  Node& node = nodes_[index];
  if (!node.transport) return;
  node.transport->faulty().cut_outgoing(node.cut.data_out);
  node.transport->faulty().cut_incoming(node.cut.data_in);
}

void Cluster::cut(uint32_t worker, const Cut& cut) {
  if (worker == 0) return;
  nodes_[worker].cut = cut;
  net_->cut(worker, Direction::kToHead, cut.to_head);
  net_->cut(worker, Direction::kToWorker, cut.to_worker);
  apply_cut(worker);
}

void Cluster::heal() {
  options_.odds = {};
  ledger_stalled_ = false;
  *ledger_trouble_ = {};
  witness_->forget_steps();
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    cut(i, {});
    pause(i, false);
    nodes_[i].slow = 1;
    nodes_[i].sick = false;
    if (nodes_[i].transport) nodes_[i].transport->faulty().set_odds({});
  }
}

bool Cluster::generate(GenerateCall call, std::shared_ptr<PieceSink> sink) {
  if (!gateway_) return false;
  if (options_.plant == Plant::kCursor && call.after > 0) --call.after;
  caf::anon_send(gateway_, GenerateOrder{std::move(call), std::move(sink)});
  return true;
}

void Cluster::detach(const RequestId& id, const PieceSink* sink) {
  if (gateway_) caf::anon_send(gateway_, DetachSink{id, sink});
}

void Cluster::cancel(const RequestId& id) {
  if (gateway_) caf::anon_send(gateway_, CancelOrder{id, [](const Result<void>&) {}});
}

void Cluster::operate(OperatorCall call) {
  if (const auto* move = std::get_if<MoveCall>(&call)) witness_->asked_for(move->stage, move->node);
  if (gateway_)
    caf::anon_send(gateway_, OperatorRequest{std::move(call), [](const Result<void>&) {}});
}

void Cluster::inject(uint32_t stage, const std::string& fault) {
  if (gateway_)
    caf::anon_send(gateway_, InjectOrder{FaultCall{.model = "", .stage = stage, .text = fault},
                                         [](const Result<void>&) {}});
}

std::optional<ClusterStatus> Cluster::status(Duration limit) {
  auto answer = std::make_shared<std::optional<ClusterStatus>>();
  if (!gateway_) return std::nullopt;
  caf::anon_send(gateway_, StatusOrder{[answer](Result<ClusterStatus> status) {
                   if (status.ok()) *answer = status.value();
                 }});
  run(limit, [&] { return answer->has_value(); });
  return *answer;
}

}  // namespace troupe::sim

#include "actors/scheduler.h"

#include <caf/send.hpp>

#include "actors/deadlines.h"
#include "actors/exceptions.h"
#include "actors/model_registry.h"
#include "actors/owed_promise.h"
#include "actors/replica_spec.h"
#include "base/log.h"

namespace troupe {
namespace {
constexpr size_t kEventsKept = 64;
}

void SchedulerState::start() {
  note(fmt::format("head {} starts, deployment {}", options.self, options.deployment.name));
  self->request(options.registry, caf::timespan{options.load_max},
                OpenModel{options.deployment.model_path, ""})
      .then([this](const OpenedModel& opened) { model_opened(opened); },
            [this](const caf::error& error) {
              model_opened({nullptr, Error{ErrorCode::kInternal, self->system().render(error)}});
            });
}

void SchedulerState::model_opened(const OpenedModel& opened) {
  if (opened.error) {
    failure = opened.error;
    note("the model cannot be served: " + opened.error->message);
    return tell_gateway(false, opened.error->message);
  }
  model = opened.model;
  read_view();
}

void SchedulerState::read_view() {
  view_due = false;
  self->request(options.ledger, caf::timespan{kAnswerMax}, GetView{options.deployment.name})
      .then([this](const ViewOutcome& outcome) { view_read(outcome); },
            [this](const caf::error& error) {
              view_unread(Error{ErrorCode::kUnavailable, self->system().render(error)});
            });
}

void SchedulerState::view_unread(const Error& why) {
  // Its storage may be full or away for a while: asked again with the next tick, and noted once.
  // What it does not understand stays as it is.
  view_due = why.code == ErrorCode::kIo || why.code == ErrorCode::kUnavailable;
  if (!view_due) failure = why;
  if (told_gateway != why.message) note("the ledger cannot be read: " + why.message);
  tell_gateway(false, why.message);
}

void SchedulerState::view_read(const ViewOutcome& outcome) {
  if (outcome.error) return view_unread(*outcome.error);
  auto spec = replica_spec(options.deployment, *model);
  if (!spec.ok()) {
    failure = spec.error();
    note("the deployment cannot be served: " + spec.error().message);
    return tell_gateway(false, spec.error().message);
  }
  spec.value().install_max = options.install_max;
  spec.value().settle_max = options.settle_max;
  spec.value().load_max = options.load_max;
  spec.value().standby = options.deployment.standby;
  replica = std::make_unique<Replica>(spec.value(), outcome.newest, options.batcher_incarnation,
                                      options.batcher_address);
  nodes_changed("the head started");
}

void SchedulerState::joined(const PeerJoined& event) {
  const Instant now = self->clock().now();
  const HelloOutcome hello = membership.hello(event.node, event.incarnation, now);
  if (hello.kind == HelloOutcome::Kind::kRefused) {
    log_warning("scheduler", "{} ({}) refused: {}", event.node, to_string(event.incarnation),
                hello.why);
    self->send(options.peer, EvictPeer{event.node, event.incarnation, hello.why});
    return;
  }
  if (hello.kind == HelloOutcome::Kind::kReplaced)
    node_lost(event.node, hello.old, "came back in a new life", false);
  if (hello.kind != HelloOutcome::Kind::kKnown) {
    Node node;
    node.incarnation = event.incarnation;
    node.since = now;
    nodes[event.node] = node;
    note(fmt::format("{} joined ({})", event.node, to_string(event.incarnation)));
  }
  nodes[event.node].address = event.address;
  nodes[event.node].state = NodeState::kAlive;
  if (event.link)
    self->send(options.health,
               WatchPeer{event.node, event.incarnation, event.link,
                         caf::actor_cast<VerdictListener>(caf::strong_actor_ptr{self->ctrl()})});
}

void SchedulerState::node_lost(const NodeId& node, Incarnation incarnation, const std::string& why,
                               bool evict) {
  const auto found = nodes.find(node);
  const bool member = found != nodes.end() && found->second.incarnation == incarnation;
  membership.lost(node, incarnation);
  self->send(options.health, UnwatchPeer{node, incarnation});
  if (evict) self->send(options.peer, EvictPeer{node, incarnation, why});
  if (!member) return;
  note(fmt::format("{} is lost: {}", node, why));
  Node last = found->second;
  last.state = NodeState::kDead;
  lost_nodes[node] = last;
  nodes.erase(found);
  nodes_changed(why);
}

void SchedulerState::verdict(const PeerVerdict& verdict) {
  const auto found = nodes.find(verdict.node);
  if (found == nodes.end() || found->second.incarnation != verdict.incarnation) return;
  switch (verdict.state) {
    case PeerVerdict::State::kAlive:
      found->second.state = NodeState::kAlive;
      note(fmt::format("{} is heard again", verdict.node));
      break;
    case PeerVerdict::State::kSuspect:
      found->second.state = NodeState::kSuspect;
      note(fmt::format("{} is suspected: {}", verdict.node, verdict.why));
      break;
    case PeerVerdict::State::kDead:
    case PeerVerdict::State::kHung:
      node_lost(verdict.node, verdict.incarnation, verdict.why, true);
      break;
  }
}

void SchedulerState::said(const PeerSaid& words) {
  const auto found = nodes.find(words.from);
  if (found == nodes.end() || found->second.incarnation != words.incarnation) return;
  if (const auto* inventory = std::get_if<NodeInventory>(&words.body)) {
    const bool first = !found->second.inventory;
    found->second.inventory = *inventory;
    if (first) nodes_changed(words.from + " joined");
  } else if (const auto* ready = std::get_if<StageReady>(&words.body)) {
    stage_ready(words.from, *ready);
  } else if (const auto* loss = std::get_if<StageLost>(&words.body)) {
    ++found->second.restarts;
    note(fmt::format("stage {} on {} {}{}", loss->stage, words.from, loss->cause,
                     loss->restarting ? "; it is being restarted there" : ""));
    if (replica)
      carry_out(replica->on_stage_lost(loss->stage, words.from, loss->incarnation, loss->restarting,
                                       loss->cause, self->clock().now()));
  } else if (const auto* stage_figures = std::get_if<StageFigures>(&words.body)) {
    record(*stage_figures);
    if (replica && stage_figures->deployment == options.deployment.name)
      carry_out(replica->on_stage_heard(stage_figures->stage, words.from));
  } else if (std::holds_alternative<Leaving>(words.body)) {
    found->second.leaving = true;
    note(words.from + " leaves in order");
    nodes_changed(words.from + " leaves");
  }
}

void SchedulerState::accused(const WrongResult& wrong) {
  log_error("scheduler", "stage {}, life {}: {}", wrong.stage, to_string(wrong.life), wrong.why);
  if (replica)
    carry_out(replica->on_wrong(wrong.stage, wrong.life, wrong.why, self->clock().now()));
}

void SchedulerState::stage_ready(const NodeId& from, const StageReady& ready) {
  const auto found = nodes.find(from);
  if (found == nodes.end() || !replica || ready.deployment != options.deployment.name) return;
  Seat seat;
  seat.node = from;
  seat.node_incarnation = found->second.incarnation;
  seat.incarnation = ready.incarnation;
  seat.layers = ready.layers;
  seat.data_address = ready.data_address;
  seat.process = ready.process;
  carry_out(replica->on_stage_ready(ready.stage, seat, self->clock().now()));
}

void SchedulerState::nodes_changed(const std::string& why) {
  if (!replica) return;
  std::vector<NodeFacts> facts;
  const auto add = [&](const NodeId& id, const Node& node) {
    if (node.inventory)
      facts.push_back({id, node.incarnation, node.inventory->memory_free_bytes,
                       node.inventory->stages_max, node.leaving || drained.contains(id)});
  };
  // The head first: the batcher is here, and stage 0 is best beside it.
  for (const auto& [id, node] : nodes)
    if (id == options.self) add(id, node);
  for (const auto& [id, node] : nodes)
    if (id != options.self) add(id, node);
  carry_out(replica->on_nodes(facts, why, self->clock().now()));
}

void SchedulerState::carry_out(const ReplicaActions& actions) {
  // What it decided; what it was told has been noted when it was heard.
  for (const ReplicaEvent& event : replica->history()) {
    if (event.number <= replica_noted) continue;
    replica_noted = event.number;
    if (!event.told) note(event.text);
  }
  for (const ReplicaAction& action : actions)
    std::visit([this](const auto& one) { carry_out(one); }, action);
}

StageSpec SchedulerState::spec_of(uint32_t stage, LayerRange layers) const {
  return StageSpec{.deployment = options.deployment.name,
                   .model_path = options.deployment.model_path,
                   .content_id = model->content_id,
                   .stage = stage,
                   .stages = options.deployment.stages,
                   .layers = layers,
                   .kv_blocks = options.deployment.kv_blocks,
                   .threads = options.deployment.threads,
                   .rows_max = options.deployment.rows_max,
                   .kernels = options.deployment.kernels,
                   .journal_bytes = options.deployment.journal_bytes,
                   .batcher = options.batcher_incarnation};
}

void SchedulerState::carry_out(const AssignAction& action) {
  note(fmt::format("{}stage {} (layers {} to {}) goes to {}", action.standby ? "a standby of " : "",
                   action.stage, action.layers.first, action.layers.last - 1, action.node));
  const auto failed = [this, action](const Error& why) {
    log_warning("scheduler", "stage {} did not start on {}: {}", action.stage, action.node,
                why.message);
    carry_out(replica->on_assign_failed(action.attempt, why, self->clock().now()));
  };
  self->request(options.peer, caf::timespan{options.load_max + kAnswerMax},
                CallPeer{action.node, AssignStage{spec_of(action.stage, action.layers)},
                         options.load_max})
      .then(
          [this, action, failed](const PeerAnswer& answer) {
            if (const auto* ready = std::get_if<StageReady>(&answer.body))
              return stage_ready(action.node, *ready);
            const auto* error = std::get_if<ControlError>(&answer.body);
            // A node that went away is reported by itself; only its own refusal counts here.
            if (error && error->code == ErrorCode::kUnavailable && !nodes.contains(action.node))
              return;
            failed(error ? Error{error->code, error->message}
                         : Error{ErrorCode::kInternal, "an answer of the wrong kind"});
          },
          [this, failed](const caf::error& error) {
            failed(Error{ErrorCode::kInternal, self->system().render(error)});
          });
}

void SchedulerState::carry_out(const StopAction& action) {
  self->send(options.peer, TellPeer{action.node, StopStage{options.deployment.name, action.stage}});
}

void SchedulerState::carry_out(const ProposeAction& action) {
  const ViewNumber number = action.view.number;
  self->request(options.ledger, caf::timespan{kAnswerMax}, SwapView{action.view})
      .then(
          [this, number](const ViewOutcome& outcome) {
            const Instant now = self->clock().now();
            if (outcome.committed)
              carry_out(replica->on_committed(number, now));
            else if (outcome.error)
              note("the ledger did not take a view: " + outcome.error->message);
            else
              carry_out(replica->on_conflict(outcome.newest, now));
          },
          [this](const caf::error& error) {
            note("the ledger did not take a view: " + self->system().render(error));
          });
}

void SchedulerState::carry_out(const InstallAction& action) {
  // One call a node; its answer counts for every seat there.
  std::map<NodeId, std::vector<uint32_t>> seats;
  for (uint32_t stage = 0; stage < action.view.seats.size(); ++stage)
    seats[action.view.seats[stage].node].push_back(stage);
  for (const Standby& standby : action.view.standbys)
    if (!seats.contains(standby.seat.node))
      self->send(options.peer, TellPeer{standby.seat.node, InstallView{action.view}});
  for (const auto& [node, stages] : seats) {
    self->request(options.peer, caf::timespan{options.install_max + kAnswerMax},
                  CallPeer{node, InstallView{action.view}, options.install_max})
        .then(
            [this, where = node, held = stages](const PeerAnswer& answer) {
              if (const auto* error = std::get_if<ControlError>(&answer.body)) {
                log_warning("scheduler", "{} did not take the view: {}", where, error->message);
                return;  // the replica's deadline decides
              }
              if (const auto* installed = std::get_if<ViewInstalled>(&answer.body)) {
                take_holdings(*installed);
                for (const uint32_t stage : held)
                  carry_out(replica->on_installed(stage, installed->view, self->clock().now()));
              }
            },
            [this, where = node](const caf::error& error) {
              log_warning("scheduler", "{} did not take the view: {}", where,
                          self->system().render(error));
            });
  }
}

// What the stages of the view that is being installed hold; the batcher plans by it.
void SchedulerState::take_holdings(const ViewInstalled& installed) {
  if (installed.view < held_in) return;
  if (installed.view > held_in) held.clear();
  held_in = installed.view;
  for (const StageHeld& stage : installed.held) held.insert_or_assign(stage.stage, stage);
}

void SchedulerState::carry_out(const ServeAction& action) {
  StartView start{action.view, {}};
  if (held_in == action.view.number)
    for (auto& [stage, of_stage] : held) start.held.push_back(std::move(of_stage));
  held.clear();
  self->send(options.batcher, std::move(start));
  tell_gateway(true, "");
}

void SchedulerState::carry_out(const PauseAction& action) {
  self->send(options.batcher, StopView{action.why, action.crashed});
}

void SchedulerState::carry_out(const StuckAction& action) {
  note("waiting: " + action.why.message);
  tell_gateway(false, action.why.message);
}

void SchedulerState::tell_gateway(bool serving, const std::string& why) {
  const std::string state = serving ? "serving" : why;
  if (state == told_gateway) return;
  told_gateway = state;
  self->send(options.gateway, ServingState{serving, why});
}

void SchedulerState::note(const std::string& text) {
  log_info("scheduler", "{}", text);
  events.push_back({wall_clock_ms(), text});
  if (events.size() > kEventsKept) events.pop_front();
}

SchedulerActor::behavior_type scheduler_actor(SchedulerActor::stateful_pointer<SchedulerState> self,
                                              SchedulerOptions options) {
  SchedulerState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  state.start();
  self->send(state.options.batcher, WatchResults{SchedulerActor{self}});
  self->delayed_send(self, state.options.tick, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const PeerJoined& event) { state.joined(event); },
      [&state](const PeerLeft& event) {
        state.node_lost(event.node, event.incarnation, event.why.message, false);
      },
      [&state](const PeerSaid& words) -> PeerAnswer {
        state.said(words);
        return PeerAnswer{Acknowledged{}};
      },
      [&state](const PeerVerdict& verdict) { state.verdict(verdict); },
      [&state](const Tick&) {
        if (state.view_due) state.read_view();
        if (state.replica) state.carry_out(state.replica->on_tick(state.self->clock().now()));
        state.self->delayed_send(state.self, state.options.tick, Tick{});
      },
      [&state](const ResultsWrong& results) {
        for (const WrongResult& wrong : results.wrong) state.accused(wrong);
      },
      [&state](const GetClusterStatus&) -> caf::result<ClusterStatus> {
        auto promise = state.self->make_response_promise<ClusterStatus>();
        auto owed =
            std::make_shared<OwedPromise<ClusterStatus>>(OwedPromise<ClusterStatus>{promise});
        state.status([owed](ClusterStatus status) { owed->deliver(std::move(status)); });
        return promise;
      },
      [&state](const FaultOrder& order) -> caf::result<FaultOutcome> {
        auto promise = state.self->make_response_promise<FaultOutcome>();
        auto owed = std::make_shared<OwedPromise<FaultOutcome>>(OwedPromise<FaultOutcome>{promise});
        state.inject(order.fault,
                     [owed](std::optional<Error> error) { owed->deliver(FaultOutcome{error}); });
        return promise;
      },
      [&state](const OperatorOrder& order) {
        const Result<void> done =
            std::visit([&state](const auto& call) { return state.order(call); }, order.call);
        return OperatorOutcome{done.ok() ? std::nullopt : std::optional(done.error())};
      },
  };
}

}  // namespace troupe

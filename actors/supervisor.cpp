#include "actors/supervisor.h"

#include <caf/send.hpp>

#include <algorithm>

#include "actors/dataplane/fault_points.h"
#include "actors/deadlines.h"
#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {
namespace {

bool same_work(const StageSpec& a, const StageSpec& b) {
  return a.deployment == b.deployment && a.model_path == b.model_path &&
         a.content_id == b.content_id && a.stage == b.stage && a.stages == b.stages &&
         a.layers == b.layers && a.kv_blocks == b.kv_blocks && a.threads == b.threads &&
         a.rows_max == b.rows_max && a.kernels == b.kernels && a.journal_bytes == b.journal_bytes;
}

}  // namespace

SupervisorState::~SupervisorState() {
  for (auto& [key, child] : children)
    if (child.actor) caf::anon_send_exit(child.actor, caf::exit_reason::user_shutdown);
}

void SupervisorState::host(const StageSpec& spec, OwedPromise<HostedStage> promise) {
  const Key key{spec.deployment, spec.stage};
  auto found = children.find(key);
  if (found != children.end() && !same_work(found->second.spec, spec)) {
    remove(key);
    found = children.end();
  }
  if (found != children.end()) {
    Child& child = found->second;
    if (child.ready)
      promise.deliver(HostedStage{*child.ready, std::nullopt});
    else
      child.waiting.push_back(std::move(promise));
    return;
  }
  Child child{spec, RestartPolicy{options.budget}};
  child.node = fmt::format("{}/stage-{}", options.self, spec.stage);
  child.waiting.push_back(std::move(promise));
  children.emplace(key, std::move(child));
  start(key);
}

void SupervisorState::start(const Key& key) {
  Child& child = children.at(key);
  ++child.life;
  child.ready.reset();
  child.assigned = false;
  child.kill_reason.clear();
  if (options.launcher)
    start_process(key, child);
  else
    start_actor(key, child);
}

void SupervisorState::start_actor(const Key& key, Child& child) {
  child.actor = options.spawner(child.spec, options.new_incarnation());
  self->monitor(child.actor);
  const uint64_t life = child.life;
  self->request(child.actor, caf::timespan{options.load_max}, StageStart{})
      .then(
          [this, key, life](const StageStarted& started) {
            if (started.error)
              child_failed(key, life, *started.error, true);
            else
              child_ready(key, life, started.ready);
          },
          [this, key, life](const caf::error& failure) {
            child_failed(key, life, Error{ErrorCode::kInternal, self->system().render(failure)},
                         false);
          });
}

void SupervisorState::start_process(const Key& key, Child& child) {
  auto launched = options.launcher->launch({child.node, key.first, key.second});
  if (!launched.ok()) {
    child_failed(key, child.life, launched.error(), true);
    return;
  }
  child.process = launched.value();
  child.hello_deadline = self->clock().now() + options.hello_max;
  log_info("supervisor", "stage {} runs as process {}", key.second, child.process);
}

void SupervisorState::joined(const PeerJoined& event) {
  Key key;
  Child* child = find_by_node(event.node, key);
  if (child == nullptr || child->process == 0) return;
  self->send(options.health,
             WatchPeer{event.node, event.incarnation, event.link,
                       caf::actor_cast<VerdictListener>(caf::strong_actor_ptr{self->ctrl()})});
  child->assigned = true;
  const uint64_t life = child->life;
  self->request(options.peer, caf::timespan{options.load_max + kAnswerMax},
                CallPeer{event.node, AssignStage{child->spec}, options.load_max})
      .then(
          [this, key, life](const PeerAnswer& answer) {
            if (const auto* ready = std::get_if<StageReady>(&answer.body))
              child_ready(key, life, *ready);
            else if (const auto* error = std::get_if<ControlError>(&answer.body))
              child_failed(key, life, Error{error->code, error->message},
                           error->code != ErrorCode::kUnavailable);
            else
              child_failed(key, life, Error{ErrorCode::kInternal, "an answer of the wrong kind"},
                           true);
          },
          [this, key, life](const caf::error& failure) {
            child_failed(key, life, Error{ErrorCode::kInternal, self->system().render(failure)},
                         false);
          });
}

void SupervisorState::child_ready(const Key& key, uint64_t life, const StageReady& ready) {
  const auto found = children.find(key);
  if (found == children.end() || found->second.life != life) return;
  Child& child = found->second;
  const bool again = child.waiting.empty();
  child.ready = ready;
  child.policy.on_success(self->clock().now());
  for (auto& promise : child.waiting) promise.deliver(HostedStage{ready, std::nullopt});
  child.waiting.clear();
  if (!again) return;
  log_info("supervisor", "stage {} is back as {}", key.second, to_string(ready.incarnation));
  self->send(options.peer, TellUpstream{ready});
}

// The stage could not be loaded. Permanent: trying again here would fail again (no such file, no
// memory).
void SupervisorState::child_failed(const Key& key, uint64_t life, const Error& why,
                                   bool permanent) {
  const auto found = children.find(key);
  if (found == children.end() || found->second.life != life) return;
  Child& child = found->second;
  log_error("supervisor", "stage {} did not start: {}", key.second, to_string(why));
  if (!permanent) {
    child.kill_reason = why.message;
    if (child.process != 0)
      options.launcher->kill(child.process);  // its end is the failure that counts
    else if (child.actor)
      self->send_exit(child.actor, caf::exit_reason::kill);
    return;
  }
  auto waiting = std::move(child.waiting);
  const bool restarted = waiting.empty();
  const Incarnation last = child.ready ? child.ready->incarnation : Incarnation{};
  remove(key);
  for (auto& promise : waiting) promise.deliver(HostedStage{{}, why});
  if (restarted)
    self->send(options.peer,
               TellUpstream{StageLost{key.first, key.second, last, why.message, false}});
}

void SupervisorState::remove(const Key& key) {
  const auto found = children.find(key);
  if (found == children.end()) return;
  Child& child = found->second;
  if (child.actor) {
    self->demonitor(child.actor.address());
    self->send_exit(child.actor, caf::exit_reason::user_shutdown);
  }
  if (child.process != 0) {
    dying.emplace(child.process, key);
    options.launcher->terminate(child.process);
  }
  if (options.launcher) options.launcher->forget(child.node);
  children.erase(found);
}

void SupervisorState::ended(const ChildEnded& event) {
  if (dying.erase(event.process) > 0) {
    check_gone();
    return;
  }
  for (auto& [key, child] : children) {
    if (child.process != event.process) continue;
    child.process = 0;
    const std::string cause =
        child.kill_reason.empty() ? event.how : event.how + " (" + child.kill_reason + ")";
    lost(Key{key}, cause);
    return;
  }
}

void SupervisorState::actor_down(const caf::actor_addr& address, const std::string& how) {
  for (auto& [key, child] : children) {
    if (!child.actor || child.actor.address() != address) continue;
    child.actor = nullptr;
    lost(Key{key}, how);
    return;
  }
}

void SupervisorState::lost(const Key& key, const std::string& cause) {
  Child& child = children.at(key);
  const Incarnation last = child.ready ? child.ready->incarnation : Incarnation{};
  child.ready.reset();
  const RestartDecision decision = child.policy.on_failure(self->clock().now());
  if (const auto* again = std::get_if<Restart>(&decision)) {
    ++child.restarts;
    log_warning("supervisor", "stage {} {}: starting it again in {:.0f} ms", key.second, cause,
                to_milliseconds(again->after));
    if (last)
      self->send(options.peer, TellUpstream{StageLost{key.first, key.second, last, cause, true}});
    self->delayed_send(self, again->after, RestartChild{key.first, key.second, child.life});
    return;
  }
  const std::string why = cause + "; " + std::get<GiveUp>(decision).why;
  log_error("supervisor", "stage {} is given up: {}", key.second, why);
  auto waiting = std::move(child.waiting);
  remove(key);
  for (auto& promise : waiting)
    promise.deliver(HostedStage{{}, Error{ErrorCode::kUnavailable, why}});
  self->send(options.peer, TellUpstream{StageLost{key.first, key.second, last, why, false}});
}

void SupervisorState::restart(const RestartChild& order) {
  const Key key{order.deployment, order.stage};
  const auto found = children.find(key);
  if (found != children.end() && found->second.life == order.life && !found->second.actor &&
      found->second.process == 0)
    start(key);
}

SupervisorState::Child* SupervisorState::find_by_node(const NodeId& node, Key& key) {
  for (auto& [child_key, child] : children) {
    if (child.node != node) continue;
    key = child_key;
    return &child;
  }
  return nullptr;
}

void SupervisorState::child_said(const PeerSaid& words) {
  Key key;
  Child* child = find_by_node(words.from, key);
  if (child == nullptr) return;
  if (const auto* figures = std::get_if<StageFigures>(&words.body)) {
    self->send(options.peer, TellUpstream{*figures});
  } else if (const auto* ready = std::get_if<StageReady>(&words.body)) {
    // The stage actor failed in its process and was restarted there.
    child->ready = *ready;
    self->send(options.peer, TellUpstream{*ready});
  } else if (const auto* loss = std::get_if<StageLost>(&words.body)) {
    if (loss->restarting) {
      ++child->restarts;
      child->ready.reset();
      self->send(options.peer, TellUpstream{*loss});
    } else {
      child->kill_reason = loss->cause;
      options.launcher->kill(child->process);
    }
  }
}

void SupervisorState::verdict(const PeerVerdict& verdict) {
  Key key;
  Child* child = find_by_node(verdict.node, key);
  if (child == nullptr || child->process == 0) return;
  if (verdict.state != PeerVerdict::State::kDead && verdict.state != PeerVerdict::State::kHung)
    return;
  log_warning("supervisor", "stage {} (process {}) is {}: killing it", key.second, child->process,
              verdict.why);
  child->kill_reason = verdict.why;
  options.launcher->kill(child->process);
}

void SupervisorState::tell_stages(const ControlBody& body, OwedPromise<PeerAnswer> promise) {
  if (const auto* view = std::get_if<InstallView>(&body))
    install(*view, std::move(promise));
  else if (const auto* fault = std::get_if<InjectFault>(&body))
    inject(*fault, std::move(promise));
  else
    promise.deliver(PeerAnswer{ControlError{ErrorCode::kInvalidArgument, "no message for stages"}});
}

// Answers when every seat that the view has here has taken it; the first failure is the answer.
// Standbys take it, too, but nobody waits for them.
void SupervisorState::install(const InstallView& order, OwedPromise<PeerAnswer> promise) {
  const View& view = order.view;
  struct Gathering {
    OwedPromise<PeerAnswer> promise;
    size_t open = 1;  // the loop below holds one
    ViewInstalled answer;
    void done(const Result<std::vector<StageHeld>>& held) {
      if (!held.ok())
        promise.deliver(PeerAnswer{ControlError{held.error().code, held.error().message}});
      else
        answer.held.insert(answer.held.end(), held.value().begin(), held.value().end());
      if (--open == 0) promise.deliver(PeerAnswer{answer});
    }
  };
  auto gathering = std::make_shared<Gathering>();
  gathering->promise = std::move(promise);
  gathering->answer = {view.deployment, view.number, {}};
  for (auto& [key, child] : children) {
    if (key.first != view.deployment || !child.ready) continue;
    const Incarnation life = child.ready->incarnation;
    const bool stands_by =
        std::any_of(view.standbys.begin(), view.standbys.end(),
                    [&](const Standby& standby) { return standby.seat.incarnation == life; });
    const bool seated =
        key.second < view.seats.size() && view.seats[key.second].incarnation == life;
    if (seated)
      ++gathering->open;
    else if (!stands_by)
      continue;
    install_in(child, order, [gathering, seated](const Result<std::vector<StageHeld>>& held) {
      if (seated) gathering->done(held);
    });
  }
  gathering->done(std::vector<StageHeld>{});
}

void SupervisorState::install_in(
    const Child& child, const InstallView& order,
    const std::function<void(const Result<std::vector<StageHeld>>&)>& done) {
  const auto failed = [done, this](const caf::error& failure) {
    done(Error{ErrorCode::kUnavailable, self->system().render(failure)});
  };
  if (child.actor) {
    self->request(child.actor, caf::timespan{options.view_max}, SetView{order.view})
        .then(
            [done](const ViewSet& set) {
              if (set.error)
                done(*set.error);
              else
                done(std::vector<StageHeld>{set.held});
            },
            failed);
    return;
  }
  self->request(options.peer, caf::timespan{options.view_max + kAnswerMax},
                CallPeer{child.node, order, options.view_max})
      .then(
          [done](const PeerAnswer& answer) {
            const auto* installed = std::get_if<ViewInstalled>(&answer.body);
            const auto* error = std::get_if<ControlError>(&answer.body);
            if (installed)
              done(installed->held);
            else
              done(error ? Error{error->code, error->message}
                         : Error{ErrorCode::kInternal, "an answer of the wrong kind"});
          },
          failed);
}

void SupervisorState::inject(const InjectFault& order, OwedPromise<PeerAnswer> promise) {
  const auto found = children.find({order.deployment, order.stage});
  if (!options.allow_faults) {
    promise.deliver(PeerAnswer{ControlError{
        ErrorCode::kInvalidArgument,
        "fault injection is off here; start the daemon with --allow-fault-injection"}});
    return;
  }
  if (found == children.end() || !found->second.ready) {
    promise.deliver(PeerAnswer{ControlError{ErrorCode::kNotFound, "no such stage runs here"}});
    return;
  }
  if (const auto fault = parse_fault(order.fault); !fault.ok()) {
    promise.deliver(PeerAnswer{ControlError{fault.error().code, fault.error().message}});
    return;
  }
  log_warning("supervisor", "injecting fault '{}' into stage {}", order.fault, order.stage);
  if (found->second.actor)
    self->send(found->second.actor, ArmFault{order.fault});
  else
    self->send(options.peer, TellPeer{found->second.node, order});
  promise.deliver(PeerAnswer{Acknowledged{}});
}

void SupervisorState::tick() {
  const Instant now = self->clock().now();
  for (auto& [key, child] : children) {
    if (child.process != 0 && !child.assigned && now > child.hello_deadline &&
        child.kill_reason.empty()) {
      child.kill_reason = "no hello within its deadline";
      options.launcher->kill(child.process);
    }
    if (child.ready) child.policy.on_success(now);
    if (!child.actor || !child.ready) continue;
    self->request(child.actor, caf::timespan{options.view_max}, GetStageFigures{})
        .then([this](
                  const StageFigures& figures) { self->send(options.peer, TellUpstream{figures}); },
              [](const caf::error&) {});  // it is ending; that is reported by itself
  }
  self->delayed_send(self, options.figures_interval, Tick{});
}

void SupervisorState::check_gone() {
  if (!children.empty() || !dying.empty()) return;
  for (auto& promise : gone) promise.deliver(StagesGone{});
  gone.clear();
}

Supervisor::behavior_type supervisor(Supervisor::stateful_pointer<SupervisorState> self,
                                     SupervisorOptions options) {
  SupervisorState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  if (state.options.launcher) {
    const Supervisor me = self;
    state.options.launcher->on_ended([me](uint64_t process, std::string how) {
      caf::anon_send(me, ChildEnded{process, std::move(how)});
    });
  }
  self->set_down_handler([&state](caf::down_msg& down) {
    state.actor_down(down.source, "failed: " + state.self->system().render(down.reason));
  });
  self->delayed_send(self, state.options.figures_interval, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const HostStage& order) -> caf::result<HostedStage> {
        auto promise = state.self->make_response_promise<HostedStage>();
        state.host(order.spec, OwedPromise<HostedStage>{promise});
        return promise;
      },
      [&state](const UnhostStage& order) {
        state.remove({order.deployment, order.stage});
      },
      [&state](const UnhostAll&) -> caf::result<StagesGone> {
        auto promise = state.self->make_response_promise<StagesGone>();
        state.gone.push_back(OwedPromise<StagesGone>{promise});
        while (!state.children.empty())
          state.remove(SupervisorState::Key{state.children.begin()->first});
        state.check_gone();
        return promise;
      },
      [&state](const TellStages& order) -> caf::result<PeerAnswer> {
        auto promise = state.self->make_response_promise<PeerAnswer>();
        state.tell_stages(order.body, OwedPromise<PeerAnswer>{promise});
        return promise;
      },
      [&state](const ChildEnded& event) { state.ended(event); },
      [&state](const RestartChild& order) { state.restart(order); },
      [&state](const PeerVerdict& verdict) { state.verdict(verdict); },
      [&state](const PeerJoined& event) { state.joined(event); },
      [&state](const PeerLeft& event) {
        state.self->send(state.options.health, UnwatchPeer{event.node, event.incarnation});
      },
      [&state](const PeerSaid& words) -> PeerAnswer {
        state.child_said(words);
        return PeerAnswer{Acknowledged{}};
      },
      [&state](const Tick&) { state.tick(); },
  };
}

}  // namespace troupe

#include "actors/node.h"

#include <algorithm>

#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {

void NodeActorState::joined(const PeerJoined& event) {
  has_upstream = true;
  log_info("node", "upstream is {} ({})", event.node, to_string(event.incarnation));
  if (options.reports_inventory) self->send(options.peer, TellUpstream{options.inventory()});
}

void NodeActorState::said(const PeerSaid& words, OwedPromise<PeerAnswer> promise) {
  if (const auto* order = std::get_if<AssignStage>(&words.body)) {
    assign(*order, std::move(promise));
  } else if (const auto* view = std::get_if<InstallView>(&words.body)) {
    install(*view, std::move(promise));
  } else if (std::holds_alternative<InjectFault>(words.body)) {
    auto owed = std::make_shared<OwedPromise<PeerAnswer>>(std::move(promise));
    self->request(options.supervisor, caf::timespan{Duration{5s}}, TellStages{words.body})
        .then([owed](const PeerAnswer& answer) { owed->deliver(answer); },
              [owed](const caf::error&) {});  // the owed promise answers
  } else if (const auto* stop = std::get_if<StopStage>(&words.body)) {
    self->send(options.supervisor, UnhostStage{stop->deployment, stop->stage});
    stages = stages > 0 ? stages - 1 : 0;
    promise.deliver(PeerAnswer{Acknowledged{}});
  } else if (const auto* evicted = std::get_if<Evicted>(&words.body)) {
    log_warning("node", "evicted: {}", evicted->why);
    promise.deliver(PeerAnswer{Acknowledged{}});
    if (options.evicted) options.evicted(evicted->why);
  } else {
    promise.deliver(
        PeerAnswer{ControlError{ErrorCode::kInvalidArgument, "a message a node does not take"}});
  }
}

void NodeActorState::assign(const AssignStage& order, OwedPromise<PeerAnswer> promise) {
  log_info("node", "hosting stage {} of {}: layers [{}, {})", order.spec.stage,
           order.spec.deployment, order.spec.layers.first, order.spec.layers.last);
  ++stages;
  auto owed = std::make_shared<OwedPromise<PeerAnswer>>(std::move(promise));
  self->request(options.supervisor, caf::timespan{options.load_max}, HostStage{order.spec})
      .then(
          [owed](const HostedStage& hosted) {
            if (hosted.error)
              owed->deliver(PeerAnswer{ControlError{hosted.error->code, hosted.error->message}});
            else
              owed->deliver(PeerAnswer{hosted.ready});
          },
          [owed, this](const caf::error& failure) {
            owed->deliver(
                PeerAnswer{ControlError{ErrorCode::kInternal, self->system().render(failure)}});
          });
}

void NodeActorState::install(const InstallView& order, OwedPromise<PeerAnswer> promise) {
  std::vector<std::vector<std::byte>> kept{order.view.batcher_address};
  for (const Seat& seat : order.view.seats) kept.push_back(seat.data_address);
  for (const Standby& standby : order.view.standbys) kept.push_back(standby.seat.data_address);
  options.router->keep(kept);
  auto owed = std::make_shared<OwedPromise<PeerAnswer>>(std::move(promise));
  self->request(options.supervisor, caf::timespan{Duration{10s}}, TellStages{order})
      .then([owed](const PeerAnswer& answer) { owed->deliver(answer); },
            [owed, this](const caf::error& failure) {
              owed->deliver(PeerAnswer{
                  ControlError{ErrorCode::kUnavailable, self->system().render(failure)}});
            });
}

void NodeActorState::leave(Duration deadline, OwedPromise<LeftCluster> promise) {
  leaving = std::move(promise);
  leave_deadline = self->clock().now() + deadline;
  if (options.reports_inventory)
    self->send(options.peer, TellUpstream{Leaving{"stopped in order"}});
  self->delayed_send(self, 20ms, Tick{});
}

void NodeActorState::end_stages() {
  self->request(options.supervisor, caf::timespan{Duration{3s}}, UnhostAll{})
      .then([this](const StagesGone&) { leaving.deliver(LeftCluster{}); },
            [this](const caf::error&) { leaving.deliver(LeftCluster{}); });
}

NodeActor::behavior_type node_actor(NodeActor::stateful_pointer<NodeActorState> self,
                                    NodeOptions options) {
  NodeActorState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  self->set_exception_handler(keep_text);
  if (state.options.upstream_max > Duration{0})
    self->delayed_send(self, state.options.upstream_max, Tick{});
  return {
      [&state](const PeerJoined& event) { state.joined(event); },
      [&state](const PeerLeft& event) {
        if (state.options.upstream_lost) state.options.upstream_lost(event.why.message);
      },
      [&state](const PeerSaid& words) -> caf::result<PeerAnswer> {
        auto promise = state.self->make_response_promise<PeerAnswer>();
        state.said(words, OwedPromise<PeerAnswer>{promise});
        return promise;
      },
      [&state](const LeaveCluster& order) -> caf::result<LeftCluster> {
        auto promise = state.self->make_response_promise<LeftCluster>();
        state.leave(order.deadline, OwedPromise<LeftCluster>{promise});
        return promise;
      },
      [&state](const Tick&) {
        if (!state.leaving.owed()) {
          if (!state.has_upstream && state.options.upstream_lost)
            state.options.upstream_lost("it never said hello");
          return;
        }
        // An orderly leave waits until the head took the stages elsewhere, but not for ever.
        if (state.stages == 0 || state.self->clock().now() >= state.leave_deadline)
          state.end_stages();
        else
          state.self->delayed_send(state.self, 20ms, Tick{});
      },
  };
}

}  // namespace troupe

#include "actors/batcher.h"

#include <caf/send.hpp>

#include "actors/exceptions.h"

namespace troupe {

BatcherState::~BatcherState() {
  if (router) router->unbind(incarnation);
}

BatcherActor::behavior_type batcher_actor(BatcherActor::stateful_pointer<BatcherState> self,
                                          BatcherOptions options) {
  BatcherState& state = self->state;
  const Duration tick = options.tick;
  state.router = options.router;
  state.incarnation = options.incarnation;
  state.port = std::make_shared<BatcherPort>(
      BatcherPortOptions{.limits = options.limits,
                         .incarnation = options.incarnation,
                         .router = options.router,
                         .listener =
                             [listener = options.listener](std::vector<BatchEvent> events) {
                               caf::anon_send(listener, BatchEvents{std::move(events)});
                             },
                         // The system's clock, which outlives its actors.
                         .now = [&clock = self->clock()] { return clock.now(); },
                         .accuse =
                             [me = BatcherActor{self}](std::vector<WrongResult> wrong) {
                               caf::anon_send(me, ResultsWrong{std::move(wrong)});
                             }});
  state.router->bind(state.incarnation, state.port);
  self->delayed_send(self, tick, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const Submit& order) {
        const auto added = state.port->submit(order.request);
        return added.ok() ? SubmitOutcome{} : SubmitOutcome{added.error()};
      },
      [&state](const CancelRequest& order) { state.port->cancel(order.id); },
      [&state](const StartView& order) { state.port->start(order.view, order.held); },
      [&state](const StopView& order) { state.port->stop(order.why, order.crashed); },
      [&state, self, tick](const Tick&) {
        state.port->tick();
        self->delayed_send(self, tick, Tick{});
      },
      [&state](const WatchResults& order) { state.watcher = order.watcher; },
      [&state, self](const ResultsWrong& results) {
        if (state.watcher) self->send(state.watcher, results);
      },
      [&state](const GetBatchingFigures&) { return state.port->figures(); },
  };
}

}  // namespace troupe

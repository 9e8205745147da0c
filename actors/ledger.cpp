#include "actors/ledger.h"

#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {

LedgerActor::behavior_type ledger_actor(LedgerActor::stateful_pointer<LedgerState> self,
                                        std::shared_ptr<std::unique_ptr<LedgerStore>> store) {
  LedgerState& state = self->state;
  state.store = std::move(*store);
  self->set_exception_handler(keep_text);
  return {
      [&state](const CreateRecord& order) {
        auto created = state.store->create(order.record);
        if (!created.ok()) {
          log_error("ledger", "{}", created.error().message);
          return RecordOutcome{false, {}, created.error(), {}};
        }
        RecordOutcome outcome{created.value().created, std::move(created.value().record), {}, {}};
        if (outcome.created) return outcome;
        auto logged = state.store->logged_tokens(order.record.id);
        // Without them it only takes longer: every token comes out the same again.
        if (logged.ok())
          outcome.logged = std::move(logged).value();
        else
          log_error("ledger", "{}", logged.error().message);
        return outcome;
      },
      [&state](const LogTokens& order) {
        const auto done = state.store->log_tokens(order.runs);
        // It comes ten times a second: what a full disk says is said once.
        if (!done.ok() && state.logs_tokens) log_error("ledger", "{}", done.error().message);
        state.logs_tokens = done.ok();
      },
      [&state](const FinishRecord& order) {
        auto done = state.store->finish(order.id, order.finish);
        if (done.ok() && ++state.finished % 1000 == 0)
          done = state.store->trim(kFinishedRecordsKept);
        if (!done.ok()) log_error("ledger", "{}", done.error().message);
      },
      [&state](const SwapView& order) {
        auto won = state.store->swap(order.view);
        if (!won.ok()) {
          log_error("ledger", "{}", won.error().message);
          return ViewOutcome{false, {}, {}, won.error()};
        }
        if (won.value()) return ViewOutcome{true, order.view.number, {}, {}};
        auto newest = state.store->newest(order.view.deployment);
        if (!newest.ok()) return ViewOutcome{false, {}, {}, newest.error()};
        return ViewOutcome{false, newest.value() ? newest.value()->number : ViewNumber{}, {}, {}};
      },
      [&state](const GetView& order) {
        auto newest = state.store->newest(order.deployment);
        if (!newest.ok()) {
          log_error("ledger", "{}", newest.error().message);
          return ViewOutcome{false, {}, {}, newest.error()};
        }
        const ViewNumber number = newest.value() ? newest.value()->number : ViewNumber{};
        return ViewOutcome{false, number, std::move(newest).value(), {}};
      },
  };
}

}  // namespace troupe

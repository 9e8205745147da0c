#include "tests/sim/ledger_tap.h"

#include <caf/send.hpp>

#include "actors/deadlines.h"

namespace troupe::sim {
namespace {

Error unanswered() {
  return {ErrorCode::kUnavailable, "the ledger's storage does not answer"};
}

// As actors/ledger_store.cpp words what SQLite says.
Error refused() {
  return {ErrorCode::kIo, "ledger: database or disk is full"};
}

}  // namespace

LedgerActor::behavior_type ledger_tap(LedgerActor::stateful_pointer<LedgerTapState> self,
                                      LedgerActor storage, std::shared_ptr<Witness> witness,
                                      std::shared_ptr<const LedgerTrouble> trouble, Plant plant) {
  return {
      [=](const CreateRecord& order) -> caf::result<RecordOutcome> {
        auto promise = self->make_response_promise<RecordOutcome>();
        if (plant == Plant::kEarlyRecord) {
          promise.deliver(RecordOutcome{true, order.record, {}, {}});
          return promise;
        }
        if (trouble->away) {
          promise.deliver(RecordOutcome{false, {}, refused(), {}});
          return promise;
        }
        self->request(storage, caf::timespan{kAnswerMax}, order)
            .then(
                [=](const RecordOutcome& outcome) mutable {
                  if (!outcome.error) witness->recorded(outcome.record.id);
                  promise.deliver(trouble->doubt ? RecordOutcome{false, {}, refused(), {}}
                                                 : outcome);
                },
                [=](const caf::error&) mutable {
                  promise.deliver(RecordOutcome{false, {}, unanswered(), {}});
                });
        return promise;
      },
      [=](const LogTokens& order) {
        if (!trouble->away) self->send(storage, order);
      },
      [=](const FinishRecord& order) {
        if (!trouble->away) self->send(storage, order);
      },
      [=](const SwapView& order) -> caf::result<ViewOutcome> {
        auto promise = self->make_response_promise<ViewOutcome>();
        const bool any = plant == Plant::kAnySwap;
        if (trouble->away) {
          promise.deliver(ViewOutcome{false, {}, {}, refused()});
          return promise;
        }
        self->request(storage, caf::timespan{kAnswerMax}, order)
            .then(
                [=, view = order.view](const ViewOutcome& outcome) mutable {
                  if (outcome.committed) witness->committed(view);
                  ViewOutcome answer = outcome;
                  if (any) answer = {true, view.number, {}, {}};
                  if (trouble->doubt) answer = {false, {}, {}, refused()};
                  if (answer.committed) witness->told(view);
                  promise.deliver(answer);
                },
                [=](const caf::error&) mutable {
                  promise.deliver(ViewOutcome{false, {}, {}, unanswered()});
                });
        return promise;
      },
      [=](const GetView& order) -> caf::result<ViewOutcome> {
        auto promise = self->make_response_promise<ViewOutcome>();
        if (trouble->away) {
          promise.deliver(ViewOutcome{false, {}, {}, refused()});
          return promise;
        }
        self->request(storage, caf::timespan{kAnswerMax}, order)
            .then([=](const ViewOutcome& outcome) mutable { promise.deliver(outcome); },
                  [=](const caf::error&) mutable {
                    promise.deliver(ViewOutcome{false, {}, {}, unanswered()});
                  });
        return promise;
      },
  };
}

}  // namespace troupe::sim

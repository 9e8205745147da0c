#include "tests/sim/peer_tap.h"

#include <caf/send.hpp>

namespace troupe::sim {
namespace {

// The node said no; a link that broke or an answer that did not come says nothing about it.
bool is_refusal(const ControlBody& body) {
  const auto* error = std::get_if<ControlError>(&body);
  return error != nullptr && error->code != ErrorCode::kUnavailable &&
         error->code != ErrorCode::kDeadlineExceeded;
}

// As if whoever gathers what stages hold took journals for longer than they are.
void claim_whole_journals(ViewInstalled& installed) {
  for (StageHeld& stage : installed.held)
    for (SequenceHeld& sequence : stage.sequences) {
      sequence.journal_first = 0;
      sequence.journal_end = sequence.length;
    }
}

}  // namespace

PeerActor::behavior_type peer_tap(PeerActor::stateful_pointer<PeerTapState> self,
                                  PeerTapOptions options) {
  PeerTapState& state = self->state;
  state.options = std::move(options);
  const auto pass = [self, &state](const auto& message) {
    self->send(state.options.peer, message);
  };
  return {
      [=](const BindPeerListeners& message) { pass(message); },
      [self, &state](const CallPeer& asked) -> caf::result<PeerAnswer> {
        auto promise = self->make_response_promise<PeerAnswer>();
        CallPeer order = asked;
        const auto* assign = std::get_if<AssignStage>(&asked.body);
        if (assign != nullptr && state.options.plant == Plant::kTriedNode) {
          const auto tried = state.tried.find(assign->spec.stage);
          if (tried != state.tried.end() && state.options.life_of(tried->second) != 0)
            order.node = tried->second;
        }
        const uint64_t life = state.options.life_of(order.node);
        const std::optional<uint32_t> stage =
            assign == nullptr ? std::nullopt : std::optional(assign->spec.stage);
        self->request(state.options.peer, caf::infinite, order)
            .then(
                [&state, promise, stage, node = order.node, life](PeerAnswer answer) mutable {
                  Witness& witness = *state.options.witness;
                  if (stage && is_refusal(answer.body)) {
                    state.tried[*stage] = node;
                    witness.refused(*stage, node, life);
                  }
                  if (auto* installed = std::get_if<ViewInstalled>(&answer.body)) {
                    witness.claims(*installed);
                    if (state.options.plant == Plant::kJournalFreed)
                      claim_whole_journals(*installed);
                  }
                  promise.deliver(std::move(answer));
                },
                [promise](const caf::error& failure) mutable { promise.deliver(failure); });
        return promise;
      },
      [=](const TellPeer& message) { pass(message); },
      [=](const TellUpstream& message) { pass(message); },
      [=](const EvictPeer& message) { pass(message); },
      [=](const LinkUp& message) { pass(message); },
      [=](const LinkSaid& message) { pass(message); },
      [=](const LinkDown& message) { pass(message); },
      [](const Tick&) {},
  };
}

}  // namespace troupe::sim

#include "actors/peer.h"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <boost/test/unit_test.hpp>

#include "tests/actors/world.h"

namespace troupe::test {
namespace {

// A wire that keeps what was sent.
class KeptWire final : public PeerWire {
 public:
  Result<void> send(LinkId link, ControlMessage message) override {
    if (refuses) return Error{ErrorCode::kUnavailable, "the link is down"};
    sent.emplace_back(link, std::move(message));
    return {};
  }
  void close(LinkId link, std::string) override { closed.push_back(link); }
  std::vector<std::pair<LinkId, ControlMessage>> sent;
  std::vector<LinkId> closed;
  bool refuses = false;
};

struct Heard {
  std::vector<PeerJoined> joined;
  std::vector<PeerLeft> left;
  std::vector<PeerSaid> said;
};
struct HeardState {
  std::shared_ptr<Heard> heard;
};
PeerListener::behavior_type listener(PeerListener::stateful_pointer<HeardState> self,
                                     std::shared_ptr<Heard> heard) {
  self->state.heard = std::move(heard);
  return {[self](const PeerJoined& event) { self->state.heard->joined.push_back(event); },
          [self](const PeerLeft& event) { self->state.heard->left.push_back(event); },
          [self](const PeerSaid& words) -> PeerAnswer {
            self->state.heard->said.push_back(words);
            return PeerAnswer{Acknowledged{}};
          }};
}

// Asks the peer actor and keeps the answer.
struct AskState {
  std::shared_ptr<std::vector<PeerAnswer>> answers;
};
using Asker = caf::typed_actor<caf::reacts_to<CallPeer>>;
Asker::behavior_type asker(Asker::stateful_pointer<AskState> self, PeerActor peer,
                           std::shared_ptr<std::vector<PeerAnswer>> answers) {
  self->state.answers = std::move(answers);
  return {[self, peer](const CallPeer& call) {
    self->request(peer, caf::infinite, call)
        .then([self](const PeerAnswer& answer) { self->state.answers->push_back(answer); },
              [self](const caf::error&) {
                self->state.answers->push_back({ControlError{ErrorCode::kInternal, "caf"}});
              });
  }};
}

struct Fixture : Stagehand {
  explicit Fixture(PeerRole role = PeerRole::kHead) : Stagehand(2) {
    PeerActorOptions options;
    options.wire = wire;
    options.role = role;
    options.self = "node-1";
    options.incarnation = Incarnation{5};
    peer = owned(system().spawn(peer_actor, options));
    BindPeerListeners bind;
    if (role == PeerRole::kHead) bind.nodes = owned(system().spawn(listener, nodes));
    bind.children = owned(system().spawn(listener, children));
    bind.upstream = owned(system().spawn(listener, upstream));
    caf::anon_send(peer, bind);
    ask = owned(system().spawn(asker, peer, answers));
    settle();
  }
  ~Fixture() override {
    peer = nullptr;
    ask = nullptr;
    end_all();
  }
  void up(uint64_t link, const NodeId& node, uint64_t life) {
    PeerHello hello;
    hello.node = node;
    hello.incarnation = Incarnation{life};
    caf::anon_send(peer, LinkUp{LinkId{link}, hello});
    settle();
  }
  void call(const NodeId& node, Duration timeout = 1s) {
    caf::anon_send(ask, CallPeer{node, AssignStage{}, timeout});
    settle();
  }
  ErrorCode error_of(size_t index) {
    const auto* error = std::get_if<ControlError>(&answers->at(index).body);
    BOOST_REQUIRE(error != nullptr);
    return error->code;
  }
  std::shared_ptr<KeptWire> wire = std::make_shared<KeptWire>();
  std::shared_ptr<Heard> nodes = std::make_shared<Heard>(), children = std::make_shared<Heard>(),
                         upstream = std::make_shared<Heard>();
  std::shared_ptr<std::vector<PeerAnswer>> answers = std::make_shared<std::vector<PeerAnswer>>();
  PeerActor peer;
  Asker ask;
};
struct WorkerFixture : Fixture {
  WorkerFixture() : Fixture(PeerRole::kWorker) {}
};

}  // namespace

BOOST_AUTO_TEST_SUITE(actors_peer)

BOOST_FIXTURE_TEST_CASE(the_heads_own_node_joins_first, Fixture) {
  BOOST_REQUIRE_EQUAL(nodes->joined.size(), 1U);
  BOOST_TEST(nodes->joined[0].node == "node-1");
  BOOST_TEST(upstream->joined.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(nodes_and_stage_processes_have_different_listeners, Fixture) {
  up(1, "node-2", 9);
  up(2, "node-1/stage-0", 10);
  up(3, "node-10", 11);  // not a child, although its name begins with ours
  BOOST_TEST(nodes->joined.size() == 3U);
  BOOST_REQUIRE_EQUAL(children->joined.size(), 1U);
  BOOST_TEST(children->joined[0].node == "node-1/stage-0");
}

BOOST_FIXTURE_TEST_CASE(a_call_is_answered_by_its_number, Fixture) {
  up(1, "node-2", 9);
  call("node-2");
  BOOST_REQUIRE_EQUAL(wire->sent.size(), 1U);
  const uint64_t number = wire->sent[0].second.call;
  caf::anon_send(peer, LinkSaid{LinkId{1}, ControlMessage{number + 1, true, Acknowledged{}}});
  settle();
  BOOST_TEST(answers->empty());
  caf::anon_send(peer, LinkSaid{LinkId{1}, ControlMessage{number, true, StageReady{}}});
  settle();
  BOOST_REQUIRE_EQUAL(answers->size(), 1U);
  BOOST_TEST(std::holds_alternative<StageReady>(answers->at(0).body));
}

BOOST_FIXTURE_TEST_CASE(an_answer_over_another_link_does_not_count, Fixture) {
  up(1, "node-2", 9);
  up(2, "node-3", 9);
  call("node-2");
  caf::anon_send(
      peer, LinkSaid{LinkId{2}, ControlMessage{wire->sent[0].second.call, true, StageReady{}}});
  settle();
  BOOST_TEST(answers->empty());
}

BOOST_FIXTURE_TEST_CASE(pending_calls_fail_at_once_when_the_link_goes_down, Fixture) {
  up(1, "node-2", 9);
  call("node-2", 100s);
  caf::anon_send(peer, LinkDown{LinkId{1}, Error{ErrorCode::kUnavailable, "reset"}});
  settle();
  BOOST_REQUIRE_EQUAL(answers->size(), 1U);
  BOOST_TEST((error_of(0) == ErrorCode::kUnavailable));
  BOOST_REQUIRE_EQUAL(nodes->left.size(), 1U);
  BOOST_TEST(nodes->left[0].why.message == "reset");
}

BOOST_FIXTURE_TEST_CASE(a_call_without_an_answer_ends_in_time, Fixture) {
  up(1, "node-2", 9);
  call("node-2", 1s);
  advance(900ms);
  BOOST_TEST(answers->empty());
  advance(200ms);
  BOOST_REQUIRE_EQUAL(answers->size(), 1U);
  BOOST_TEST((error_of(0) == ErrorCode::kDeadlineExceeded));
}

BOOST_FIXTURE_TEST_CASE(a_call_to_nobody_fails_at_once, Fixture) {
  call("node-9");
  BOOST_TEST((error_of(0) == ErrorCode::kUnavailable));
  up(1, "node-2", 9);
  wire->refuses = true;
  call("node-2");
  BOOST_TEST((error_of(1) == ErrorCode::kUnavailable));
}

BOOST_FIXTURE_TEST_CASE(a_call_to_ourselves_stays_here, Fixture) {
  call("node-1");
  BOOST_REQUIRE_EQUAL(upstream->said.size(), 1U);
  BOOST_REQUIRE_EQUAL(answers->size(), 1U);
  BOOST_TEST(wire->sent.empty());
}

BOOST_FIXTURE_TEST_CASE(a_question_of_a_peer_is_answered_with_its_number, Fixture) {
  up(1, "node-2", 9);
  caf::anon_send(peer, LinkSaid{LinkId{1}, ControlMessage{77, false, NodeInventory{}}});
  settle();
  BOOST_TEST(nodes->said.size() == 1U);
  BOOST_REQUIRE_EQUAL(wire->sent.size(), 1U);
  BOOST_TEST(wire->sent[0].second.call == 77U);
  BOOST_TEST(wire->sent[0].second.answer);
}

BOOST_FIXTURE_TEST_CASE(a_newer_link_of_a_node_replaces_the_older_one, Fixture) {
  up(1, "node-2", 9);
  up(2, "node-2", 10);
  BOOST_TEST(nodes->left.size() == 1U);
  BOOST_TEST((nodes->left[0].incarnation == Incarnation{9}));
  call("node-2");
  BOOST_TEST((wire->sent[0].first == LinkId{2}));
}

BOOST_FIXTURE_TEST_CASE(an_evicted_node_is_told_and_cut_off, Fixture) {
  up(1, "node-2", 9);
  caf::anon_send(peer, EvictPeer{"node-2", Incarnation{8}, "another life"});
  settle();
  BOOST_TEST(wire->closed.empty());
  caf::anon_send(peer, EvictPeer{"node-2", Incarnation{9}, "silent"});
  settle();
  BOOST_REQUIRE_EQUAL(wire->sent.size(), 1U);
  BOOST_TEST(std::holds_alternative<Evicted>(wire->sent[0].second.body));
  BOOST_TEST(wire->closed.size() == 1U);
  BOOST_TEST(nodes->left.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_worker_keeps_a_bounded_number_of_words_for_an_absent_head,
                        WorkerFixture) {
  for (uint32_t i = 0; i < 300; ++i)
    caf::anon_send(peer, TellUpstream{StageLost{"d", i, {}, "gone", true}});
  settle();
  BOOST_TEST(wire->sent.empty());
  up(1, "node-0", 3);
  BOOST_REQUIRE_EQUAL(wire->sent.size(), 256U);
  BOOST_TEST(std::get<StageLost>(wire->sent.front().second.body).stage == 44U);
  BOOST_TEST(std::get<StageLost>(wire->sent.back().second.body).stage == 299U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

#include "actors/supervisor.h"

#include <caf/send.hpp>

#include <boost/test/unit_test.hpp>

#include "actors/health_monitor.h"
#include "tests/actors/world.h"

namespace troupe::test {
namespace {

// Stage processes that exist only as numbers.
class PaperLauncher final : public StageLauncher {
 public:
  void on_ended(std::function<void(uint64_t, std::string)> told) override {
    ended = std::move(told);
  }
  Result<uint64_t> launch(const LaunchOrder& order) override {
    if (fails) return Error{ErrorCode::kIo, "no such program"};
    orders.push_back(order);
    return 1000 + orders.size();
  }
  void forget(const NodeId& child) override { forgotten.push_back(child); }
  void kill(uint64_t process) override { killed.push_back(process); }
  void terminate(uint64_t process) override { terminated.push_back(process); }
  std::function<void(uint64_t, std::string)> ended;
  std::vector<LaunchOrder> orders;
  std::vector<uint64_t> killed, terminated;
  std::vector<NodeId> forgotten;
  bool fails = false;
};

// Plays the peer actor: keeps what is told upstream, answers AssignStage as a stage process would.
struct PeerPlay {
  std::vector<ControlBody> upstream;
  uint64_t next_life = 500;
  bool answers = true;
};
struct PlayState {
  std::shared_ptr<PeerPlay> play;
};
PeerActor::behavior_type play_peer(PeerActor::stateful_pointer<PlayState> self,
                                   std::shared_ptr<PeerPlay> play) {
  self->state.play = std::move(play);
  return {[](const BindPeerListeners&) {},
          [self](const CallPeer& call) -> caf::result<PeerAnswer> {
            if (!self->state.play->answers)
              return PeerAnswer{ControlError{ErrorCode::kUnavailable, "link down"}};
            if (const auto* order = std::get_if<AssignStage>(&call.body)) {
              StageReady ready;
              ready.deployment = order->spec.deployment;
              ready.stage = order->spec.stage;
              ready.incarnation = Incarnation{++self->state.play->next_life};
              return PeerAnswer{ready};
            }
            return PeerAnswer{Acknowledged{}};
          },
          [](const TellPeer&) {},
          [self](const TellUpstream& words) { self->state.play->upstream.push_back(words.body); },
          [](const EvictPeer&) {},
          [](const LinkUp&) {},
          [](const LinkSaid&) {},
          [](const LinkDown&) {},
          [](const Tick&) {}};
}

struct AskState {
  std::shared_ptr<std::vector<HostedStage>> answers;
};
using Asker = caf::typed_actor<caf::reacts_to<HostStage>>;
Asker::behavior_type asker(Asker::stateful_pointer<AskState> self, Supervisor target,
                           std::shared_ptr<std::vector<HostedStage>> answers) {
  self->state.answers = std::move(answers);
  return {[self, target](const HostStage& order) {
    self->request(target, caf::infinite, order)
        .then([self](const HostedStage& hosted) { self->state.answers->push_back(hosted); },
              [self](const caf::error&) {
                self->state.answers->push_back({{}, Error{ErrorCode::kInternal, "caf"}});
              });
  }};
}

struct Fixture : Stagehand {
  Fixture() : Stagehand(4) {
    SupervisorOptions options;
    options.self = "node-1";
    options.peer = owned(system().spawn(play_peer, play));
    options.health = owned(system().spawn(health_monitor, HealthOptions{}));
    options.launcher = launcher;
    options.new_incarnation = [] { return Incarnation{1}; };
    boss = owned(system().spawn(supervisor, options));
    ask = owned(system().spawn(asker, boss, answers));
    settle();
  }
  ~Fixture() override {
    boss = nullptr;
    ask = nullptr;
    end_all();
  }
  static StageSpec spec(uint32_t last = 10) {
    StageSpec made;
    made.deployment = "d";
    made.stage = 1;
    made.stages = 2;
    made.layers = {5, last};
    return made;
  }
  void host(const StageSpec& wanted = spec()) {
    caf::anon_send(ask, HostStage{wanted});
    settle();
  }
  void says_hello() {
    caf::anon_send(
        boss, PeerJoined{"node-1/stage-1", Incarnation{60}, "", LinkId{launcher->orders.size()}});
    settle();
  }
  void dies(uint64_t process, const std::string& how = "was killed by signal 9") {
    launcher->ended(process, how);
    settle();
  }
  template <class Body>
  std::vector<Body> told() const {
    std::vector<Body> found;
    for (const ControlBody& body : play->upstream)
      if (const auto* one = std::get_if<Body>(&body)) found.push_back(*one);
    return found;
  }
  std::shared_ptr<PaperLauncher> launcher = std::make_shared<PaperLauncher>();
  std::shared_ptr<PeerPlay> play = std::make_shared<PeerPlay>();
  std::shared_ptr<std::vector<HostedStage>> answers = std::make_shared<std::vector<HostedStage>>();
  Supervisor boss;
  Asker ask;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(actors_supervisor)

BOOST_FIXTURE_TEST_CASE(a_stage_process_is_ready_when_it_said_hello_and_loaded, Fixture) {
  host();
  BOOST_REQUIRE_EQUAL(launcher->orders.size(), 1U);
  BOOST_TEST(launcher->orders[0].child == "node-1/stage-1");
  BOOST_TEST(answers->empty());
  says_hello();
  BOOST_REQUIRE_EQUAL(answers->size(), 1U);
  BOOST_TEST(!answers->at(0).error.has_value());
  BOOST_TEST((answers->at(0).ready.incarnation == Incarnation{501}));
}

BOOST_FIXTURE_TEST_CASE(a_killed_process_is_reported_restarted_and_reported_again, Fixture) {
  host();
  says_hello();
  dies(1001);
  const auto lost = told<StageLost>();
  BOOST_REQUIRE_EQUAL(lost.size(), 1U);
  BOOST_TEST(lost[0].restarting);
  BOOST_TEST(lost[0].cause.find("signal 9") != std::string::npos);
  BOOST_TEST((lost[0].incarnation == Incarnation{501}));
  advance(200ms);
  BOOST_REQUIRE_EQUAL(launcher->orders.size(), 2U);
  says_hello();
  const auto ready = told<StageReady>();
  BOOST_REQUIRE_EQUAL(ready.size(), 1U);
  BOOST_TEST((ready[0].incarnation == Incarnation{502}));
}

BOOST_FIXTURE_TEST_CASE(a_stage_that_keeps_dying_is_given_up_and_the_head_is_told, Fixture) {
  host();
  says_hello();
  for (uint64_t life = 1; life <= 4; ++life) {
    dies(1000 + life);
    advance(2s);
    says_hello();
  }
  BOOST_TEST(launcher->orders.size() == 4U);
  const auto lost = told<StageLost>();
  BOOST_REQUIRE_EQUAL(lost.size(), 4U);
  BOOST_TEST(!lost.back().restarting);
  BOOST_TEST(lost.back().cause.find("3 restarts") != std::string::npos, lost.back().cause);
}

BOOST_FIXTURE_TEST_CASE(a_process_that_never_says_hello_is_killed, Fixture) {
  host();
  advance(12s);
  BOOST_REQUIRE_EQUAL(launcher->killed.size(), 1U);
  BOOST_TEST(launcher->killed[0] == 1001U);
}

BOOST_FIXTURE_TEST_CASE(a_hung_stage_is_killed_with_the_reason_kept, Fixture) {
  host();
  says_hello();
  caf::anon_send(boss, PeerVerdict{"node-1/stage-1", Incarnation{60}, PeerVerdict::State::kHung,
                                   "stands still"});
  settle();
  BOOST_TEST(launcher->killed.size() == 1U);
  dies(1001);
  BOOST_TEST(told<StageLost>().at(0).cause.find("stands still") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(equal_work_is_adopted_other_work_replaces_it, Fixture) {
  host();
  says_hello();
  host();
  BOOST_TEST(launcher->orders.size() == 1U);
  BOOST_TEST(answers->size() == 2U);
  host(spec(9));
  BOOST_TEST(launcher->terminated.size() == 1U);
  BOOST_TEST(launcher->orders.size() == 2U);
  dies(1001, "ended with code 0");
  BOOST_TEST(told<StageLost>().empty());
}

BOOST_FIXTURE_TEST_CASE(a_program_that_cannot_start_is_an_answer_at_once, Fixture) {
  launcher->fails = true;
  host();
  BOOST_REQUIRE_EQUAL(answers->size(), 1U);
  BOOST_REQUIRE(answers->at(0).error.has_value());
  BOOST_TEST(answers->at(0).error->message == "no such program");
}

BOOST_FIXTURE_TEST_CASE(a_failure_inside_the_process_is_passed_on, Fixture) {
  host();
  says_hello();
  caf::anon_send(boss, PeerSaid{"node-1/stage-1", Incarnation{60},
                                StageLost{"d", 1, Incarnation{501}, "threw", true}});
  StageReady again;
  again.deployment = "d";
  again.stage = 1;
  again.incarnation = Incarnation{777};
  caf::anon_send(boss, PeerSaid{"node-1/stage-1", Incarnation{60}, again});
  settle();
  BOOST_TEST(told<StageLost>().size() == 1U);
  BOOST_REQUIRE_EQUAL(told<StageReady>().size(), 1U);
  BOOST_TEST((told<StageReady>()[0].incarnation == Incarnation{777}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test

// A replica in a small world that breaks: nodes come, go, come back, drain and are taken back,
// operators move stages, stages die and are restarted or not, loads fail or hang, messages to and
// from the ledger and the members get lost, another scheduler writes into the ledger. Whenever the
// faults stop, the replica must serve again, and no step on the way may be a wrong one.
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "actors/logic/recovery.h"

namespace troupe {
namespace {

struct Odds {  // per step, in permille
  uint32_t node_crash, node_join, node_drain, operator_move, stage_crash, load_fails, load_hangs,
      commit_lost, other_writer, ack_lost;
};

class World {
 public:
  explicit World(uint32_t seed)
      : seed_(seed),
        random_(seed),
        spec_(draw_spec()),
        odds_(draw_odds()),
        replica_(spec_, ViewNumber{ledger_}, Incarnation{1}, {}) {}

  void run(int steps) {
    const uint32_t nodes = 1 + upto(4);
    for (uint32_t i = 0; i < nodes; ++i) nodes_.push_back(make_node(fmt::format("node-{}", i)));
    tell_nodes("start");
    for (int i = 0; i < steps; ++i) step();
    heal();
  }

  uint32_t served() const { return served_; }
  uint32_t moves() const { return moves_; }
  uint32_t promoted() const { return promoted_; }

 private:
  struct Process {  // a stage on a node
    NodeId node;
    Incarnation node_incarnation, incarnation;
    LayerRange layers;
    uint64_t attempt = 0;  // of the assignment that started it
    bool ready = false;
  };
  using Slot = std::pair<NodeId, uint32_t>;

  uint32_t upto(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }  // [0, limit)
  bool chance(uint32_t permille) { return upto(1000) < permille; }

  ReplicaSpec draw_spec() {
    ReplicaSpec spec;
    spec.deployment = "demo";
    spec.layers = 12;
    spec.layer_bytes = 1 << 20;
    spec.stages = 1 + upto(4);
    spec.nodes_expected = 1 + upto(3);
    spec.load_max = 5s;
    if (upto(2) == 0) spec.standby = StandbyPolicy::kKv;
    ledger_ = upto(2) * 7;
    return spec;
  }

  Odds draw_odds() {
    const auto sometimes = [&](uint32_t most) { return upto(2) == 0 ? 1 + upto(most) : 0; };
    return {sometimes(30), 40,
            sometimes(10), sometimes(50),
            sometimes(40), sometimes(100),
            sometimes(50), sometimes(300),
            sometimes(20), sometimes(300)};
  }

  NodeFacts make_node(const std::string& name) {
    return {name, Incarnation{++lives_}, uint64_t{64} << 20, 0, false};
  }

  void step() {
    now_ += std::chrono::milliseconds(1 + upto(200));
    if (chance(odds_.node_crash)) crash_node();
    if (chance(odds_.node_join)) join_node();
    if (chance(odds_.node_drain) && !nodes_.empty()) {
      nodes_[upto(static_cast<uint32_t>(nodes_.size()))].draining = upto(3) != 0;
      tell_nodes("drain");
    }
    if (chance(odds_.operator_move) && !nodes_.empty()) move_stage();
    if (chance(odds_.stage_crash)) crash_stage();
    if (chance(odds_.other_writer))
      carry_out(replica_.on_policy(upto(2) == 0 ? StandbyPolicy::kKv : StandbyPolicy::kNone, now_));
    if (chance(odds_.other_writer)) ++ledger_;
    // Messages of one kind arrive in order, those of different kinds do not.
    if (!to_ledger_.empty() && upto(2) == 0) ledger_answers();
    if (!to_members_.empty() && upto(2) == 0) members_answer();
    if (!loading_.empty() && upto(2) == 0) load();
    if (!news_.empty() && upto(2) == 0) {
      const auto tell = std::move(news_.front());
      news_.pop_front();
      tell();
    }
    carry_out(replica_.on_tick(now_));
  }

  void heal() {
    odds_ = {};
    for (NodeFacts& node : nodes_) node.draining = false;
    nodes_.push_back(make_node("rescuer"));  // all others may have refused a stage
    tell_nodes("heal");
    for (int i = 0; i < 400; ++i) step();
    BOOST_TEST_REQUIRE(
        (replica_.state() == ReplicaState::kServing),
        "seed " << seed_ << ": " << to_string(replica_.state()) << ", "
                << (replica_.history().empty() ? "" : replica_.history().back().text));
    BOOST_TEST_REQUIRE(serving_, "seed " << seed_);
    uint32_t next_layer = 0;
    for (uint32_t stage = 0; stage < spec_.stages; ++stage) {
      const Seat& seat = replica_.view().seats[stage];
      const auto process = processes_.find({seat.node, stage});
      BOOST_TEST_REQUIRE((process != processes_.end()), "seed " << seed_);
      BOOST_TEST((process->second.incarnation == seat.incarnation), "seed " << seed_);
      BOOST_TEST((members_[seat.incarnation] == replica_.view().number), "seed " << seed_);
      BOOST_TEST(seat.layers.first == next_layer, "seed " << seed_);
      next_layer = seat.layers.last;
    }
    BOOST_TEST(next_layer == spec_.layers, "seed " << seed_);
    for (const Standby& standby : replica_.ready_standbys()) {
      const auto process = processes_.find({standby.seat.node, standby.stage});
      BOOST_TEST_REQUIRE((process != processes_.end()), "seed " << seed_);
      BOOST_TEST((process->second.incarnation == standby.seat.incarnation), "seed " << seed_);
    }
    BOOST_TEST(processes_.size() == spec_.stages + replica_.ready_standbys().size(),
               "a stage was left behind, seed " << seed_);
    BOOST_TEST(replica_.view().number.value == ledger_committed_, "seed " << seed_);
  }

  // Faults.
  void crash_node() {
    if (nodes_.empty()) return;
    const size_t chosen = upto(static_cast<uint32_t>(nodes_.size()));
    const NodeId node = nodes_[chosen].node;
    if (upto(3) == 0) {
      nodes_[chosen] = make_node(node);  // came back before anybody noticed
    } else {
      nodes_.erase(nodes_.begin() + static_cast<ptrdiff_t>(chosen));
    }
    std::erase_if(processes_, [&](const auto& entry) { return entry.first.first == node; });
    tell_nodes("crash");
  }

  void join_node() {
    if (nodes_.size() >= 5) return;
    const std::string name = fmt::format("node-{}", upto(5));
    for (const NodeFacts& node : nodes_)
      if (node.node == name) return;
    nodes_.push_back(make_node(name));
    tell_nodes("join");
  }

  void move_stage() {
    const NodeId& to = nodes_[upto(static_cast<uint32_t>(nodes_.size()))].node;
    const auto actions = replica_.on_move(upto(spec_.stages), to, now_);
    if (!actions.ok()) return;
    BOOST_TEST_REQUIRE(serving_, "moved in a recovery, seed " << seed_);
    ++moves_;
    carry_out(actions.value());
  }

  void crash_stage() {
    if (processes_.empty()) return;
    auto chosen = processes_.begin();
    std::advance(chosen, upto(static_cast<uint32_t>(processes_.size())));
    const auto [slot, process] = *chosen;
    processes_.erase(chosen);
    const bool restarting = upto(3) != 0;
    if (restarting) {
      Process successor = process;
      successor.incarnation = Incarnation{++lives_};
      successor.ready = false;
      processes_[slot] = successor;
      loading_.push_back(slot);
    }
    report(process.node_incarnation, [this, slot, old = process.incarnation, restarting] {
      if (live(slot.first)) reported_.erase(old);
      carry_out(replica_.on_stage_lost(slot.second, slot.first, old, restarting, "crash", now_));
    });
  }

  // News travel with the node's link: they end with it.
  template <class Tell>
  void report(Incarnation node_incarnation, Tell tell) {
    news_.push_back([this, node_incarnation, tell] {
      for (const NodeFacts& node : nodes_)
        if (node.incarnation == node_incarnation) return tell();
    });
  }

  // The world's part.
  void load() {
    const Slot slot = loading_.front();
    loading_.pop_front();
    const auto entry = processes_.find(slot);
    if (entry == processes_.end() || entry->second.ready) return;
    Process& process = entry->second;
    if (chance(odds_.load_hangs)) return;
    if (chance(odds_.load_fails)) {
      const Incarnation node_incarnation = process.node_incarnation;
      const uint64_t attempt = process.attempt;
      processes_.erase(entry);
      report(node_incarnation, [this, attempt] {
        carry_out(replica_.on_assign_failed(attempt, {ErrorCode::kIo, "disk"}, now_));
      });
      return;
    }
    process.ready = true;
    tell_ready(slot, process);
  }

  void tell_ready(const Slot& slot, const Process& process) {
    report(process.node_incarnation, [this, slot, process] {
      reported_.insert(process.incarnation);
      was_reported_.insert(process.incarnation);
      const Seat seat{
          process.node, process.node_incarnation, process.incarnation, process.layers, {}, 0};
      carry_out(replica_.on_stage_ready(slot.second, seat, now_));
    });
  }

  void ledger_answers() {
    const View view = to_ledger_.front();
    to_ledger_.pop_front();
    const bool written = ledger_ + 1 == view.number.value;
    if (written) ledger_ = ledger_committed_ = view.number.value;
    if (chance(odds_.commit_lost)) return;
    carry_out(written ? replica_.on_committed(view.number, now_)
                      : replica_.on_conflict(ViewNumber{ledger_}, now_));
  }

  void members_answer() {
    const auto [stage, seat, number] = to_members_.front();
    to_members_.pop_front();
    const auto process = processes_.find({seat.node, stage});
    if (process == processes_.end() || process->second.incarnation != seat.incarnation) return;
    members_[seat.incarnation] = number;
    if (chance(odds_.ack_lost)) return;
    carry_out(replica_.on_installed(stage, number, now_));
  }

  const NodeFacts* live(const NodeId& node) const {
    for (const NodeFacts& facts : nodes_)
      if (facts.node == node) return &facts;
    return nullptr;
  }

  void tell_nodes(const std::string& why) { carry_out(replica_.on_nodes(nodes_, why, now_)); }

  // What the replica does, checked.
  void carry_out(const ReplicaActions& actions) {
    for (const ReplicaAction& action : actions)
      std::visit([this](const auto& act) { carry_out(act); }, action);
    BOOST_TEST_REQUIRE((serving_ == (replica_.state() == ReplicaState::kServing)),
                       "seed " << seed_);
  }

  void carry_out(const AssignAction& act) {
    const NodeFacts* node = live(act.node);
    BOOST_TEST_REQUIRE(node != nullptr, "assigned to nobody, seed " << seed_);
    BOOST_TEST_REQUIRE((node->incarnation == act.node_incarnation), "seed " << seed_);
    BOOST_TEST_REQUIRE(!node->draining, "assigned to a draining node, seed " << seed_);
    // A node adopts what it runs already: a standby whose stage is placed there.
    const auto known = processes_.find({act.node, act.stage});
    if (known != processes_.end() && known->second.node_incarnation == act.node_incarnation) {
      BOOST_TEST_REQUIRE(!act.standby, "two standbys on one node, seed " << seed_);
      if (known->second.ready) tell_ready({act.node, act.stage}, known->second);
      return;
    }
    processes_[{act.node, act.stage}] = {act.node, act.node_incarnation, Incarnation{++lives_},
                                         act.layers, act.attempt};
    loading_.push_back({act.node, act.stage});
  }

  void carry_out(const StopAction& act) {
    BOOST_TEST_REQUIRE(live(act.node) != nullptr, "stop sent to nobody, seed " << seed_);
    if (serving_)
      BOOST_TEST_REQUIRE((replica_.view().seats[act.stage].node != act.node),
                         "stopped a stage that serves, seed " << seed_);
    processes_.erase({act.node, act.stage});
  }

  void carry_out(const ProposeAction& act) {
    BOOST_TEST_REQUIRE(!serving_, "proposed while serving, seed " << seed_);
    BOOST_TEST_REQUIRE(act.view.seats.size() == spec_.stages, "seed " << seed_);
    BOOST_TEST_REQUIRE(act.view.number.value > installed_, "seed " << seed_);
    for (const Seat& seat : act.view.seats) {
      BOOST_TEST_REQUIRE(reported_.contains(seat.incarnation),
                         "no ready stage in a seat, seed " << seed_);
      const NodeFacts* node = live(seat.node);
      BOOST_TEST_REQUIRE((node != nullptr && node->incarnation == seat.node_incarnation),
                         "a seat on a dead node, seed " << seed_);
      promoted_ += standing_by_.contains(seat.incarnation) ? 1 : 0;
    }
    standing_by_.clear();
    for (const Standby& standby : act.view.standbys) {
      // It may have ended since: a lost answer is asked for again with the same view.
      BOOST_TEST_REQUIRE(was_reported_.contains(standby.seat.incarnation), "seed " << seed_);
      BOOST_TEST_REQUIRE((act.view.seats[standby.stage].node != standby.seat.node),
                         "a standby beside its seat, seed " << seed_);
      standing_by_.insert(standby.seat.incarnation);
    }
    to_ledger_.push_back(act.view);
  }

  void carry_out(const InstallAction& act) {
    const uint64_t number = act.view.number.value;
    BOOST_TEST_REQUIRE(number <= ledger_committed_,
                       "installed before it was written, seed " << seed_);
    BOOST_TEST_REQUIRE(number >= installed_, "seed " << seed_);
    installed_ = number;
    for (uint32_t stage = 0; stage < act.view.seats.size(); ++stage)
      to_members_.push_back({stage, act.view.seats[stage], act.view.number});
  }

  void carry_out(const ServeAction& act) {
    BOOST_TEST_REQUIRE(!serving_, "seed " << seed_);
    BOOST_TEST_REQUIRE(act.view.number.value > last_served_, "seed " << seed_);
    for (const Seat& seat : act.view.seats)
      BOOST_TEST_REQUIRE((members_[seat.incarnation] == act.view.number), "seed " << seed_);
    // Whatever changed has a cause.
    for (const ReplicaEvent& event : replica_.history())
      BOOST_TEST_REQUIRE(event.text.find("()") == std::string::npos, "seed " << seed_);
    last_served_ = act.view.number.value;
    serving_ = true;
    ++served_;
  }

  void carry_out(const PauseAction& act) {
    BOOST_TEST_REQUIRE(serving_, "paused twice, seed " << seed_);
    BOOST_TEST(!act.why.empty());
    serving_ = false;
  }

  void carry_out(const StuckAction& act) {
    BOOST_TEST_REQUIRE(!serving_, "seed " << seed_);
    BOOST_TEST(!act.why.message.empty());
  }

  struct Install {
    uint32_t stage;
    Seat seat;
    ViewNumber number;
  };

  uint32_t seed_;
  std::mt19937 random_;
  uint64_t ledger_ = 0, ledger_committed_ = 0;
  ReplicaSpec spec_;
  Odds odds_;
  Replica replica_;
  Instant now_{1h};
  uint64_t lives_ = 100;
  std::vector<NodeFacts> nodes_;
  std::map<Slot, Process> processes_;
  std::set<Incarnation>
      reported_;  // stage lives the replica was told are ready, and not that they ended
  std::set<Incarnation> was_reported_;         // also those that ended
  std::map<Incarnation, ViewNumber> members_;  // what each stage life installed
  std::deque<Slot> loading_;
  std::deque<View> to_ledger_;
  std::deque<Install> to_members_;
  std::deque<std::function<void()>> news_;
  bool serving_ = false;
  uint64_t installed_ = 0, last_served_ = 0;
  uint32_t served_ = 0, moves_ = 0, promoted_ = 0;
  std::set<Incarnation> standing_by_;  // in the view proposed last
};

BOOST_AUTO_TEST_SUITE(recovery_simulation)

BOOST_AUTO_TEST_CASE(it_always_serves_again_once_the_faults_stop) {
  uint32_t served = 0, moves = 0, promoted = 0;
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    World world(seed);
    world.run(300);
    served += world.served();
    moves += world.moves();
    promoted += world.promoted();
  }
  BOOST_TEST_MESSAGE(served << " views served, " << moves << " moves asked for, " << promoted
                            << " standbys promoted");
  BOOST_TEST(served > 1500U * 3);  // else the faults leave nothing to look at
  BOOST_TEST(moves > 1500U);
  BOOST_TEST(promoted > 500U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

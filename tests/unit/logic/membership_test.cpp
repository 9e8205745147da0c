#include "actors/logic/membership.h"

#include <boost/test/unit_test.hpp>

namespace troupe {
namespace {

using Kind = HelloOutcome::Kind;
const Instant kNow{1h};

BOOST_AUTO_TEST_SUITE(membership)

BOOST_AUTO_TEST_CASE(a_node_joins_once_and_may_say_hello_again) {
  Membership members;
  BOOST_TEST((members.hello("node-1", Incarnation{7}, kNow).kind == Kind::kJoined));
  BOOST_TEST((members.hello("node-1", Incarnation{7}, kNow + 1s).kind == Kind::kKnown));
  BOOST_TEST_REQUIRE(members.members().size() == 1U);
  BOOST_TEST((members.find("node-1")->since == kNow));
  BOOST_TEST(!members.find("node-2").has_value());
}

BOOST_AUTO_TEST_CASE(a_new_life_replaces_the_old_one_at_once) {
  Membership members;
  members.hello("node-1", Incarnation{7}, kNow);
  const HelloOutcome outcome = members.hello("node-1", Incarnation{8}, kNow);
  BOOST_TEST((outcome.kind == Kind::kReplaced));
  BOOST_TEST((outcome.old == Incarnation{7}));
  BOOST_TEST((members.find("node-1")->incarnation == Incarnation{8}));
  // The ghost: it must not throw its successor out.
  const HelloOutcome ghost = members.hello("node-1", Incarnation{7}, kNow);
  BOOST_TEST((ghost.kind == Kind::kRefused));
  BOOST_TEST(
      ghost.why ==
      "incarnation 0000000000000007 of node-1 was declared dead: drop all state and come back as "
      "a new one");
  BOOST_TEST((members.find("node-1")->incarnation == Incarnation{8}));
}

BOOST_AUTO_TEST_CASE(a_life_declared_dead_stays_dead) {
  Membership members;
  members.hello("node-1", Incarnation{7}, kNow);
  BOOST_TEST(members.lost("node-1", Incarnation{7}));
  BOOST_TEST(!members.lost("node-1", Incarnation{7}));
  BOOST_TEST(members.members().empty());
  BOOST_TEST((members.hello("node-1", Incarnation{7}, kNow).kind == Kind::kRefused));
  BOOST_TEST((members.hello("node-1", Incarnation{9}, kNow).kind == Kind::kJoined));
  // Late news of the old life's death leaves the new one alone.
  BOOST_TEST(!members.lost("node-1", Incarnation{7}));
  BOOST_TEST(members.members().size() == 1U);
}

BOOST_AUTO_TEST_CASE(members_are_listed_by_name) {
  Membership members;
  for (const char* node : {"b", "c", "a"}) members.hello(node, Incarnation{1}, kNow);
  std::string names;
  for (const Member& member : members.members()) names += member.node;
  BOOST_TEST(names == "abc");
}

BOOST_AUTO_TEST_CASE(remembers_a_bounded_number_of_lives_and_members) {
  Membership members({.members_max = 2, .dead_max = 3});
  for (uint64_t life = 1; life <= 5; ++life) {
    members.hello("node-1", Incarnation{life}, kNow);
    members.lost("node-1", Incarnation{life});
  }
  BOOST_TEST(!members.dead("node-1", Incarnation{2}));
  BOOST_TEST(members.dead("node-1", Incarnation{3}));
  BOOST_TEST(!members.dead("node-2", Incarnation{3}));
  members.hello("a", Incarnation{1}, kNow);
  members.hello("b", Incarnation{1}, kNow);
  const HelloOutcome third = members.hello("c", Incarnation{1}, kNow);
  BOOST_TEST((third.kind == Kind::kRefused));
  BOOST_TEST(third.why == "the cluster has 2 nodes, allowed are 2");
  BOOST_TEST((members.hello("b", Incarnation{2}, kNow).kind == Kind::kReplaced));
}

BOOST_AUTO_TEST_CASE(nameless_nodes_and_lives_are_refused) {
  Membership members;
  BOOST_TEST((members.hello("", Incarnation{1}, kNow).kind == Kind::kRefused));
  BOOST_TEST((members.hello("a", Incarnation{0}, kNow).kind == Kind::kRefused));
  BOOST_TEST(!members.lost("a", Incarnation{0}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

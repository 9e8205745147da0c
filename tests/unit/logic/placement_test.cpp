#include "actors/logic/placement.h"

#include <boost/test/unit_test.hpp>

#include <random>

namespace troupe {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

NodeFacts node(const std::string& name, uint64_t memory, uint32_t stages_max = 0) {
  return {
      .node = name, .incarnation = Incarnation{1}, .memory_free = memory, .stages_max = stages_max};
}

PlacementRequest request(uint32_t layers, uint32_t stages, std::vector<NodeFacts> nodes) {
  return {.layers = layers,
          .layer_bytes = kGiB,
          .embedding_bytes = 0,
          .head_bytes = 0,
          .stages = stages,
          .layer_split = {},
          .nodes = std::move(nodes),
          .kept = {},
          .barred = {},
          .avoided = {}};
}

// "a b a": the node of each stage.
std::string seats(const PlacementRequest& wanted) {
  const auto placed = place(wanted);
  if (!placed.ok()) return placed.error().message;
  std::string text;
  uint32_t next = 0;
  for (const Placement& placement : placed.value()) {
    BOOST_TEST(placement.layers.first == next);
    next = placement.layers.last;
    text.append(text.empty() ? "" : " ").append(placement.node);
  }
  BOOST_TEST(next == wanted.layers);
  return text;
}

std::vector<uint32_t> counts(const PlacementRequest& wanted) {
  const auto ranges = split_layers(wanted);
  std::vector<uint32_t> list;
  for (const LayerRange& range : ranges.value()) list.push_back(range.count());
  return list;
}

BOOST_AUTO_TEST_SUITE(placement)

BOOST_AUTO_TEST_CASE(cuts_layers_evenly) {
  using List = std::vector<uint32_t>;
  BOOST_TEST(counts(request(30, 3, {})) == (List{10, 10, 10}), boost::test_tools::per_element());
  BOOST_TEST(counts(request(7, 3, {})) == (List{3, 2, 2}), boost::test_tools::per_element());
  BOOST_TEST(counts(request(4, 4, {})) == (List{1, 1, 1, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(counts_the_embedding_and_the_head_as_layers_worth) {
  using List = std::vector<uint32_t>;
  PlacementRequest wanted = request(10, 2, {});
  wanted.head_bytes = 4 * kGiB;
  BOOST_TEST(counts(wanted) == (List{7, 3}), boost::test_tools::per_element());
  wanted.embedding_bytes = 4 * kGiB;
  BOOST_TEST(counts(wanted) == (List{5, 5}), boost::test_tools::per_element());
  // Time, where it is known, instead of memory: an embedding is a look-up and costs next to
  // nothing.
  wanted.layer_cost = 10;
  wanted.head_cost = 40;
  BOOST_TEST(counts(wanted) == (List{7, 3}), boost::test_tools::per_element());
  // A head dearer than everything else still gets one layer.
  wanted.head_cost = 1000;
  BOOST_TEST(counts(wanted) == (List{9, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(honours_a_split_or_says_what_is_wrong_with_it) {
  PlacementRequest wanted = request(12, 3, {node("a", 100 * kGiB)});
  wanted.layer_split = {0, 2, 11};
  BOOST_TEST(counts(wanted) == (std::vector<uint32_t>{2, 9, 1}), boost::test_tools::per_element());
  const auto refusal = [&](std::vector<uint32_t> split) {
    wanted.layer_split = std::move(split);
    const auto placed = place(wanted);
    BOOST_TEST_REQUIRE(!placed.ok());
    BOOST_TEST((placed.error().code == ErrorCode::kInvalidArgument));
    return placed.error().message;
  };
  BOOST_TEST(refusal({0, 6}) == "layer_split names 2 stages, the deployment has 3");
  BOOST_TEST(refusal({1, 6, 8}) == "layer_split starts at layer 1, it must start at 0");
  BOOST_TEST(refusal({0, 6, 6}).starts_with(
      "layer_split gives stage 1 the layers from 6 up to but without 6"));
  BOOST_TEST(refusal({0, 6, 12})
                 .starts_with("layer_split gives stage 2 the layers from 12 up to but without 12"));
  BOOST_TEST(refusal({0, 6, 0xFFFFFFFF}).starts_with("layer_split gives stage 2"));
}

BOOST_AUTO_TEST_CASE(refuses_impossible_numbers_of_stages) {
  BOOST_TEST(seats(request(4, 5, {node("a", 100 * kGiB)})) ==
             "5 stages for a model of 4 layers, allowed are 1 to 4");
  BOOST_TEST(seats(request(4, 0, {node("a", 100 * kGiB)})) ==
             "0 stages for a model of 4 layers, allowed are 1 to 4");
}

BOOST_AUTO_TEST_CASE(spreads_one_a_node_before_two_a_node) {
  const std::vector<NodeFacts> nodes{node("head", 8 * kGiB), node("b", 50 * kGiB),
                                     node("c", 20 * kGiB)};
  BOOST_TEST(seats(request(3, 1, nodes)) == "head");
  BOOST_TEST(seats(request(3, 3, nodes)) == "head b c");
  BOOST_TEST(seats(request(6, 6, nodes)) == "head b c b c head");
}

BOOST_AUTO_TEST_CASE(the_first_stage_goes_elsewhere_if_the_head_has_no_room) {
  BOOST_TEST(seats(request(4, 2, {node("head", kGiB), node("b", 9 * kGiB), node("c", 5 * kGiB)})) ==
             "b c");
}

BOOST_AUTO_TEST_CASE(survivors_stay_where_they_are) {
  PlacementRequest wanted =
      request(6, 3, {node("head", 9 * kGiB), node("b", 9 * kGiB), node("c", 90 * kGiB)});
  wanted.kept = {{0, "b", {0, 2}}, {2, "head", {4, 6}}};
  BOOST_TEST(seats(wanted) == "b c head");
  wanted.nodes.pop_back();  // the third node is gone: the roomier, then the earlier, takes its
                            // stage as well
  BOOST_TEST(seats(wanted) == "b head head");
  wanted.nodes[0].draining =
      true;  // a survivor on a draining node stays, but nothing new goes there
  BOOST_TEST(seats(wanted) == "b b head");
}

BOOST_AUTO_TEST_CASE(keeps_away_from_nodes_that_refused) {
  PlacementRequest wanted = request(2, 1, {node("a", 9 * kGiB), node("b", 9 * kGiB)});
  wanted.avoided = {{0, "a"}};
  BOOST_TEST(seats(wanted) == "b");
  wanted.barred = {{0, "b"}};
  BOOST_TEST(seats(wanted) == "a");
  wanted.barred.push_back({0, "a"});
  BOOST_TEST(seats(wanted).ends_with("2 refused a stage"));
}

BOOST_AUTO_TEST_CASE(refuses_with_figures_when_it_does_not_fit) {
  BOOST_TEST(
      seats(request(9, 3, {node("a", 2 * kGiB), node("b", 3 * kGiB), node("c", kGiB / 2)})) ==
      "needs 9.0 GiB for 3 stages, 5.5 GiB free on 3 nodes");
  BOOST_TEST(seats(request(4, 1, {node("a", 2 * kGiB), node("b", 3 * kGiB)})) ==
             "needs 4.0 GiB for 1 stage, 5.0 GiB free on 2 nodes; the largest stage needs 4.0 GiB");
  PlacementRequest limited = request(4, 2, {node("a", 9 * kGiB, 1), node("b", 9 * kGiB)});
  limited.nodes[1].draining = true;
  limited.kept = {{0, "a", {0, 2}}};
  BOOST_TEST(
      seats(limited) ==
      "needs 2.0 GiB for 1 stage, 0 B free on 0 nodes; 1 at their limit of stages; 1 draining");
  PlacementRequest absurd = request(4, 1, {node("a", ~uint64_t{0} - 1)});
  absurd.layer_bytes = ~uint64_t{0} / 2;  // the sum does not wrap round to something small
  BOOST_TEST(seats(absurd).starts_with("needs 16.0 EiB"));
}

BOOST_AUTO_TEST_CASE(steps_back_where_the_first_choice_leaves_no_room) {
  // Preferred would be head b c, but the large middle stage fits the head only.
  PlacementRequest wanted =
      request(8, 3, {node("head", 6 * kGiB), node("b", 2 * kGiB), node("c", kGiB)});
  wanted.layer_split = {0, 1, 7};
  BOOST_TEST(seats(wanted) == "b head c");
}

BOOST_AUTO_TEST_CASE(whatever_it_places_fits) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    PlacementRequest wanted = request(static_cast<uint32_t>(1 + random() % 40), 1, {});
    wanted.stages = 1 + static_cast<uint32_t>(random() % std::min<uint32_t>(wanted.layers, 8));
    wanted.head_bytes = random() % (4 * kGiB);
    wanted.embedding_bytes = random() % (4 * kGiB);
    const auto nodes = static_cast<uint32_t>(1 + random() % 6);
    for (uint32_t i = 0; i < nodes; ++i)
      wanted.nodes.push_back(node(std::string(1, static_cast<char>('a' + i)),
                                  random() % (20 * kGiB), static_cast<uint32_t>(random() % 4)));
    const auto placed = place(wanted);
    if (!placed.ok()) continue;
    for (const NodeFacts& facts : wanted.nodes) {
      uint64_t used = 0;
      uint32_t stages = 0;
      for (const Placement& placement : placed.value()) {
        if (placement.node != facts.node) continue;
        ++stages;
        used += placement.layers.count() * kGiB;
        if (placement.stage == 0) used += wanted.embedding_bytes;
        if (placement.stage + 1 == wanted.stages) used += wanted.head_bytes;
      }
      BOOST_TEST(used <= facts.memory_free, "seed " << seed);
      BOOST_TEST((facts.stages_max == 0 || stages <= facts.stages_max), "seed " << seed);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_stage_fits_on_one_node_or_is_told_why_not) {
  auto wanted = request(6, 3, {node("a", 4 * kGiB), node("b", 5 * kGiB, 1), node("c", kGiB)});
  wanted.kept = {{0, "a", {}}, {1, "b", {}}, {2, "c", {}}};
  const auto text = [&](uint32_t stage, const std::string& where) {
    const auto placed = place_on(wanted, stage, where);
    if (!placed.ok()) return to_string(placed.error());
    BOOST_TEST(placed.value().layers.first == 2 * stage);
    return placed.value().node;
  };
  BOOST_TEST(text(1, "a") == "a");
  BOOST_TEST(text(1, "b") == "b");  // its own place does not count twice
  BOOST_TEST(text(2, "b") == "resource exhausted: b has no room: it holds 1 of at most 1 stages");
  BOOST_TEST(text(0, "c") ==
             "resource exhausted: c has no room: stage 0 needs 2.0 GiB, 0 B are free there");
  BOOST_TEST(text(0, "x") == "not found: no node x");
  BOOST_TEST(text(3, "a") == "invalid argument: no stage 3, there are 3");
  wanted.stages = 7;
  BOOST_TEST(text(0, "a") ==
             "invalid argument: 7 stages for a model of 6 layers, allowed are 1 to 6");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

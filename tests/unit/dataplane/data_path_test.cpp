// The data path of a stage without actors: router, port, journal and standby, over the loopback
// transport pumped by hand.
#include <boost/test/unit_test.hpp>

#include <map>
#include <memory>
#include <vector>

#include "actors/dataplane/fault_points.h"
#include "tests/unit/dataplane/scene.h"

namespace troupe {
namespace {

using test::Collected;
using test::kBatcher;
using test::life;
using test::Process;
using test::Stage;
using test::view_of;

FramePtr frame_to(uint64_t view, uint64_t receiver, uint64_t sequence, FrameKind kind,
                  uint32_t position, uint32_t rows) {
  auto frame = std::make_shared<Frame>();
  frame->header.kind = kind;
  frame->header.view = {view};
  frame->header.sender = {kBatcher};
  frame->header.receiver = {receiver};
  frame->header.edge_sequence = sequence;
  frame->header.micro_batch = {sequence};
  FrameSegment segment;
  segment.sequence = {5};
  segment.position = position;
  segment.rows = rows;
  segment.blocks = {3};
  if (kind == FrameKind::kTokens) segment.tokens.assign(rows, 9);
  frame->header.segments.push_back(segment);
  return frame;
}

BOOST_AUTO_TEST_SUITE(data_path)

BOOST_AUTO_TEST_CASE(frames_reach_whom_they_name_and_nobody_else) {
  Process process;
  const auto a = process.listen(1), b = process.listen(2);
  const auto here = process.transport->address();
  for (const uint64_t to : {1, 2, 2, 3})
    process.router->send(here, frame_to(1, to, 1, FrameKind::kTokens, 0, 1));
  process.pump();
  BOOST_TEST(a->frames.size() == 1U);
  BOOST_TEST(b->frames.size() == 2U);
  BOOST_TEST(process.router->figures().unroutable == 1U);
  process.router->unbind(Incarnation{2});
  process.router->unbind(Incarnation{99});
  process.router->send(here, frame_to(1, 2, 1, FrameKind::kTokens, 0, 1));
  process.pump();
  BOOST_TEST(b->frames.size() == 2U);
  const std::vector<std::byte> nonsense(3);
  process.router->send(nonsense, frame_to(1, 1, 1, FrameKind::kTokens, 0, 1));
  BOOST_TEST(process.router->figures().dropped == 1U);
}

BOOST_AUTO_TEST_CASE(frames_wait_for_credit_in_order_and_are_bounded) {
  LoopbackHub hub{LoopbackPump::kByHand};
  auto router = std::make_shared<FrameRouter>(10);
  std::shared_ptr<Transport> transport = hub.attach(*router);
  router->attach(transport);
  auto sink = std::make_shared<Collected>();
  router->bind(Incarnation{1}, sink);
  const auto here = transport->address();
  for (uint64_t i = 1; i <= kWindow + 15; ++i)
    router->send(here, frame_to(1, 1, i, FrameKind::kTokens, 0, 1));
  BOOST_TEST(router->figures().dropped == 5U);  // the newest
  while (hub.pump() > 0) {
  }
  BOOST_TEST(sink->frames.size() == kWindow);
  for (uint64_t i = 0; i < kWindow; ++i)
    BOOST_TEST_REQUIRE(sink->frames[i]->header.edge_sequence == i + 1);
  sink->frames.clear();  // credit returns
  while (hub.pump() > 0) {
  }
  BOOST_TEST_REQUIRE(sink->frames.size() == 10U);
  BOOST_TEST(sink->frames.front()->header.edge_sequence == kWindow + 1);
  sink->frames.clear();
  router->keep({});  // closes the connection; the next frame opens another
  router->send(here, frame_to(1, 1, 1, FrameKind::kTokens, 0, 1));
  while (hub.pump() > 0) {
  }
  BOOST_TEST(sink->frames.size() == 1U);
  sink->frames.clear();
  router->detach();
  router->send(here, frame_to(1, 1, 1, FrameKind::kTokens, 0, 1));  // harmless
}

BOOST_AUTO_TEST_CASE(a_micro_batch_goes_through_all_stages_and_ends_where_it_shall) {
  Process process;
  const auto batcher = process.listen(kBatcher);
  Stage first(process, 0, 3, life(0)), second(process, 1, 3, life(1)),
      third(process, 2, 3, life(2));
  const View view = view_of(process, 1, {life(0), life(1), life(2)});
  for (Stage* stage : {&first, &second, &third}) BOOST_TEST(stage->set(view).ok());
  const auto here = process.transport->address();
  process.router->send(here, frame_to(1, life(0), 1, FrameKind::kTokens, 0, 4));
  process.pump();
  BOOST_TEST_REQUIRE(batcher->frames.size() == 1U);
  BOOST_TEST((batcher->frames[0]->header.kind == FrameKind::kSampled));
  BOOST_TEST((batcher->frames[0]->header.sender == Incarnation{life(2)}));
  auto early = frame_to(1, life(0), 2, FrameKind::kTokens, 4, 2);
  early->header.exit_stage = 1;
  process.router->send(here, early);
  process.pump();
  BOOST_TEST_REQUIRE(batcher->frames.size() == 2U);
  BOOST_TEST((batcher->frames[1]->header.sender == Incarnation{life(1)}));
  BOOST_TEST(third.program->runs == 1);
  // Of another view, from a stranger, repeated, of the wrong kind: nothing runs.
  auto stranger = frame_to(1, life(0), 3, FrameKind::kTokens, 6, 1);
  stranger->header.sender = {99};
  process.router->send(here, stranger);
  process.router->send(here, frame_to(2, life(0), 3, FrameKind::kTokens, 6, 1));
  process.router->send(here, frame_to(1, life(0), 2, FrameKind::kTokens, 6, 1));
  process.pump();
  BOOST_TEST(batcher->frames.size() == 2U);
  process.router->send(here, frame_to(1, life(1), 1, FrameKind::kTokens, 6, 1));
  process.pump();
  BOOST_TEST_REQUIRE(batcher->frames.size() == 3U);
  BOOST_TEST((batcher->frames[2]->header.kind == FrameKind::kRefused));
  BOOST_TEST(first.program->runs == 2);
  BOOST_TEST(second.program->runs == 2);
}

BOOST_AUTO_TEST_CASE(a_view_tells_what_is_held_and_another_batcher_starts_anew) {
  Process process;
  const auto batcher = process.listen(kBatcher);
  Stage first(process, 0, 2, life(0)), second(process, 1, 2, life(1));
  for (Stage* stage : {&first, &second})
    BOOST_TEST(stage->set(view_of(process, 1, {life(0), life(1)})).ok());
  process.router->send(process.transport->address(),
                       frame_to(1, life(0), 1, FrameKind::kTokens, 0, 4));
  process.pump();
  const auto held = first.set(view_of(process, 2, {life(0), life(1)}));
  BOOST_TEST_REQUIRE(held.value().sequences.size() == 1U);
  BOOST_TEST((held.value().sequences[0] == SequenceHeld{{5}, 4, 0, 4}));
  BOOST_TEST((second.set(view_of(process, 2, {life(0), life(1)})).value().sequences[0] ==
              SequenceHeld{{5}, 4, 0, 0}));  // the last one keeps no output
  BOOST_TEST(
      (first.set(view_of(process, 1, {life(0), life(1)})).error().code == ErrorCode::kFenced));
  BOOST_TEST((first.set(view_of(process, 3, {99, life(1)})).error().code == ErrorCode::kFenced));
  BOOST_TEST(first.set(view_of(process, 2, {life(0), life(1)})).ok());  // a repeat
  BOOST_TEST(first.set(view_of(process, 3, {life(0), life(1)}, 2)).value().sequences.empty());
}

BOOST_AUTO_TEST_CASE(a_lost_stage_gets_its_rows_from_the_journal_before_it) {
  Process process;
  const auto batcher = process.listen(kBatcher);
  Stage first(process, 0, 3, life(0)), third(process, 2, 3, life(2));
  auto second = std::make_unique<Stage>(process, 1, 3, life(1));
  const View view = view_of(process, 1, {life(0), life(1), life(2)});
  for (Stage* stage : {&first, second.get(), &third}) BOOST_TEST(stage->set(view).ok());
  const auto here = process.transport->address();
  process.router->send(here, frame_to(1, life(0), 1, FrameKind::kTokens, 0, 6));
  process.pump();
  process.router->unbind(Incarnation{life(1)});
  second = std::make_unique<Stage>(process, 1, 3, 77);
  const View next = view_of(process, 2, {life(0), 77, life(2)});
  for (Stage* stage : {&first, second.get(), &third}) BOOST_TEST(stage->set(next).ok());
  auto replay = frame_to(2, life(0), 1, FrameKind::kReplay, 1, 5);
  replay->header.exit_stage = 1;
  process.router->send(here, replay);  // from 1 on: the new life holds nothing, so it is a gap
  process.pump();
  BOOST_TEST((batcher->frames.back()->header.kind == FrameKind::kRefused));
  replay = frame_to(2, life(0), 2, FrameKind::kReplay, 0, 6);
  replay->header.exit_stage = 1;
  process.router->send(here, replay);
  process.pump();
  BOOST_TEST((batcher->frames.back()->header.kind == FrameKind::kSampled));
  BOOST_TEST(second->program->held[SequenceId{5}] == 6U);
  BOOST_TEST(first.program->runs == 1);
  BOOST_TEST(third.program->runs == 1);
  // More than is kept.
  process.router->send(here, frame_to(2, life(0), 3, FrameKind::kReplay, 0, 7));
  process.pump();
  BOOST_TEST((batcher->frames.back()->header.kind == FrameKind::kRefused));
  BOOST_TEST((batcher->frames.back()->header.refusal_code == ErrorCode::kConflict));
}

BOOST_AUTO_TEST_CASE(a_standby_follows_and_then_holds_what_the_seat_held) {
  Process process;
  const auto batcher = process.listen(kBatcher);
  Stage seat(process, 0, 1, life(0)), standby(process, 0, 1, 50);
  View view = view_of(process, 1, {life(0)});
  const auto here = process.transport->address();
  BOOST_TEST(seat.set(view).ok());
  process.router->send(here, frame_to(1, life(0), 1, FrameKind::kTokens, 0, 30));
  process.pump();
  view.number = {2};
  view.standbys.push_back({0, view.seats[0]});
  view.standbys[0].seat.incarnation = {50};
  BOOST_TEST(seat.set(view).ok());
  BOOST_TEST(standby.set(view).ok());
  // Filled from the start on, with the next micro-batch.
  process.router->send(here, frame_to(2, life(0), 1, FrameKind::kTokens, 30, 20));
  process.pump();
  BOOST_TEST(standby.program->held[SequenceId{5}] == 50U);
  StageFigures figures;
  seat.port->report(figures);
  BOOST_TEST((figures.standby == Incarnation{50}));
  BOOST_TEST(figures.standby_behind == 0U);
  // A frame for it from anybody but its seat is none; nor does it take micro-batches.
  process.router->send(here, frame_to(2, 50, 1, FrameKind::kTokens, 50, 1));
  process.pump();
  BOOST_TEST(standby.program->runs == 0);
  // It takes the seat with everything.
  View promoted = view_of(process, 3, {50});
  const auto held = standby.set(promoted);
  BOOST_TEST_REQUIRE(held.value().sequences.size() == 1U);
  BOOST_TEST(held.value().sequences[0].length == 50U);
  BOOST_TEST((seat.set(promoted).error().code == ErrorCode::kFenced));
}

BOOST_AUTO_TEST_CASE(a_journal_keeps_what_any_standby_downstream_may_need) {
  Process process;
  const auto batcher = process.listen(kBatcher);
  Stage first(process, 0, 3, life(0)), second(process, 1, 3, life(1)),
      third(process, 2, 3, life(2));
  Stage second_standby(process, 1, 3, 51), third_standby(process, 2, 3, 52);
  const auto kept = [](Stage& stage) {
    StageFigures figures;
    stage.port->report(figures);
    return figures.journal_bytes;
  };
  const auto run = [&](uint64_t view, uint64_t sequence, uint32_t position) {
    process.router->send(process.transport->address(),
                         frame_to(view, life(0), sequence, FrameKind::kTokens, position, 200));
    process.pump();
  };
  // Only the second stage has a standby: the third, if it is lost, needs everything.
  View view = view_of(process, 1, {life(0), life(1), life(2)});
  view.standbys.push_back({1, view.seats[1]});
  view.standbys[0].seat.incarnation = {51};
  for (Stage* stage : {&first, &second, &third, &second_standby})
    BOOST_TEST_REQUIRE(stage->set(view).ok());
  run(1, 1, 0);
  BOOST_TEST(second_standby.program->held[SequenceId{5}] == 200U);
  BOOST_TEST(kept(first) == 800U);
  BOOST_TEST(kept(second) == 800U);
  // All behind the first have one now: whole chunks of 64 rows go.
  view.number = {2};
  view.standbys.push_back({2, view.seats[2]});
  view.standbys[1].seat.incarnation = {52};
  for (Stage* stage : {&first, &second, &third, &second_standby, &third_standby})
    BOOST_TEST_REQUIRE(stage->set(view).ok());
  run(2, 1, 200);
  BOOST_TEST(third_standby.program->held[SequenceId{5}] == 400U);
  BOOST_TEST(kept(second) == (400U - 384U) * 4);
  BOOST_TEST(kept(first) == (400U - 384U) * 4);
}

BOOST_AUTO_TEST_CASE(faults_strike_once_where_they_are_armed) {
  BOOST_TEST((parse_fault("kill").value().action == FaultAction::kKill));
  BOOST_TEST((parse_fault("hang").value().point == FaultPoint::kCompute));
  BOOST_TEST((parse_fault("stop@sent+12").value().point == FaultPoint::kSent));
  BOOST_TEST(parse_fault("stop@sent+12").value().after == 12U);
  for (const char* wrong : {"", "die", "kill@", "kill@lunch", "kill+", "kill+x", "kill+1x",
                            "kill+-1", "kill@sent+99999999999"})
    BOOST_TEST((parse_fault(wrong).error().code == ErrorCode::kInvalidArgument), wrong);
  for (const char* point : {"arrive", "accept", "compute", "computed", "sent"}) {
    Process process;
    const auto batcher = process.listen(kBatcher);
    Stage stage(process, 0, 1, life(0));
    BOOST_TEST(stage.set(view_of(process, 1, {life(0)})).ok());
    stage.port->arm(parse_fault(std::string("throw@") + point + "+1").value());
    const auto here = process.transport->address();
    for (uint32_t i = 0; i < 2; ++i)
      process.router->send(here, frame_to(1, life(0), i + 1, FrameKind::kTokens, i, 1));
    process.pump();
    BOOST_TEST(stage.struck == 1, point);
    BOOST_TEST(batcher->frames.size() == (std::string(point) == "sent" ? 2U : 1U), point);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

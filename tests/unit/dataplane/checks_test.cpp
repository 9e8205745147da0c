// The `input` policy on the data path: a standby that executes what its stage executed, and says
// whether the same came out.
#include <fmt/format.h>

#include "actors/dataplane/fault_points.h"
#include "tests/unit/dataplane/scene.h"

namespace troupe {
namespace {

using test::kBatcher;
using test::life;
using test::Process;
using test::Stage;

constexpr uint64_t kStandby = 50;

// Two stages; the first one has a standby that checks it.
struct Checked {
  Process process;
  std::shared_ptr<test::Collected> batcher = process.listen(kBatcher);
  Stage seat{process, 0, 2, life(0)}, next{process, 1, 2, life(1)},
      standby{process, 0, 2, kStandby};
  uint64_t number = 0, sequence = 0;

  View view(StandbyPolicy policy = StandbyPolicy::kInput) {
    View view = test::view_of(process, ++number, {life(0), life(1)});
    view.standbys.push_back({0, view.seats[0], policy});
    view.standbys[0].seat.incarnation = {kStandby};
    return view;
  }
  void install(const View& view) {
    for (Stage* stage : {&seat, &next, &standby}) {
      BOOST_TEST_REQUIRE(stage->set(view).ok());
      process.pump();
    }
    sequence = 0;
  }
  void run(uint32_t position, uint32_t rows, std::vector<SequenceId> released = {}) {
    auto frame = std::make_shared<Frame>();
    frame->header.kind = FrameKind::kTokens;
    frame->header.view = {number};
    frame->header.sender = {kBatcher};
    frame->header.receiver = {life(0)};
    frame->header.edge_sequence = ++sequence;
    frame->header.micro_batch = {sequence};
    frame->header.released = std::move(released);
    FrameSegment segment;
    segment.sequence = {5};
    segment.position = position;
    segment.rows = rows;
    segment.blocks = {3};
    segment.tokens.assign(rows, 9);
    if (rows > 0) frame->header.segments.push_back(segment);
    process.router->send(process.transport->address(), std::move(frame));
    process.pump();
  }
  // What the standby told the batcher …
  std::vector<FrameSegment> said() const {
    std::vector<FrameSegment> all;
    for (const FramePtr& frame : batcher->frames)
      if (frame->header.kind == FrameKind::kChecked)
        all.insert(all.end(), frame->header.segments.begin(), frame->header.segments.end());
    return all;
  }
  // … as text: "0+4 4+1"; a dispute ends with "!".
  std::string told() const {
    std::string all;
    for (const FrameSegment& segment : said())
      all += fmt::format("{}{}+{}{}", all.empty() ? "" : " ", segment.position, segment.rows,
                         segment.disputed ? "!" : "");
    return all;
  }
};

BOOST_FIXTURE_TEST_SUITE(checks, Checked)

BOOST_AUTO_TEST_CASE(the_standby_executes_what_the_stage_executed_and_tells_the_batcher) {
  install(view());
  run(0, 4);
  run(4, 1);
  run(5, 1);
  BOOST_TEST(told() == "0+4 4+1 5+1");
  BOOST_TEST(standby.program->runs == 3);
  BOOST_TEST(standby.program->held[SequenceId{5}] == 6U);
  const FrameSegment first = said().front();
  BOOST_TEST(first.outcomes.size() == 4U);
  BOOST_TEST(first.outcomes[0] != first.outcomes[1]);
  StageFigures figures;
  seat.port->report(figures);
  BOOST_TEST(figures.standby_behind == 0U);
}

BOOST_AUTO_TEST_CASE(rows_from_before_come_as_kv_and_are_not_checked) {
  View alone = view();
  alone.standbys.clear();
  for (Stage* stage : {&seat, &next}) BOOST_TEST_REQUIRE(stage->set(alone).ok());
  run(0, 30);
  install(view());
  run(30, 1);
  BOOST_TEST(told() == "30+1");
  BOOST_TEST(standby.program->runs == 1);
  BOOST_TEST(standby.program->held[SequenceId{5}] == 31U);
}

BOOST_AUTO_TEST_CASE(a_result_that_differs_is_in_dispute_and_the_sequence_rests) {
  install(view());
  standby.program->wrong_at = 6;
  run(0, 4);
  run(4, 4);
  BOOST_TEST(told() == "0+4 4+2!");
  BOOST_TEST(said().back().seat_outcome != said().back().standby_outcome);
  run(8, 1);
  BOOST_TEST(told() == "0+4 4+2!");
  BOOST_TEST(standby.program->runs == 2);
  // The sequence ends; whatever comes after it is checked as ever.
  run(0, 0, {SequenceId{5}});
  standby.program->wrong_at = UINT32_MAX;
  run(0, 2);
  BOOST_TEST(told() == "0+4 4+2! 0+2");
}

BOOST_AUTO_TEST_CASE(a_standby_for_which_nothing_comes_out_disputes) {
  install(view());
  run(0, 4);
  standby.program->fails = true;
  run(4, 1);
  BOOST_TEST(told() == "0+4 4+0!");
  BOOST_TEST(said().back().standby_outcome == 0U);
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_of_the_stage_is_found) {
  install(view());
  seat.port->arm(parse_fault("flip+1").value());
  run(0, 4);
  run(4, 1);
  BOOST_TEST(told() == "0+4 4+0!");
  for (const char* wrong : {"flip@sent", "flip@compute", "flip@"})
    BOOST_TEST((parse_fault(wrong).error().code == ErrorCode::kInvalidArgument), wrong);
}

BOOST_AUTO_TEST_CASE(what_was_said_is_said_again_until_the_sequence_ends) {
  install(view());
  run(0, 4);
  Instant now{1h};
  standby.port->tick(now);
  now += kCheckedAgainAfter;
  standby.port->tick(now);
  process.pump();
  BOOST_TEST(told() == "0+4 4+0");
  run(0, 0, {SequenceId{5}});
  standby.port->tick(now + kCheckedAgainAfter);
  process.pump();
  BOOST_TEST(told() == "0+4 4+0");
}

BOOST_AUTO_TEST_CASE(rows_that_came_as_kv_are_checked_when_they_are_executed_after_all) {
  // A row that the stage executed for a view that was gone when it had: it has the row, but sent
  // nothing on, and it will be executed again.
  install(view());
  run(0, 4);
  seat.program->held[SequenceId{5}] = 5;
  seat.port->tick(Instant{1h});
  seat.port->tick(Instant{1h} + kFeedAnswerMax);
  // The row goes as KV, and before that is answered it is executed again.
  run(4, 1);
  BOOST_TEST(standby.program->held[SequenceId{5}] == 5U);
  BOOST_TEST(told().starts_with("0+4 4+1"));
}

BOOST_AUTO_TEST_CASE(rows_executed_once_more_take_nothing_back) {
  install(view());
  run(0, 6);
  run(2, 2);  // a micro-batch that was sent again
  Instant now{1h};
  standby.port->tick(now);
  standby.port->tick(now + kCheckedAgainAfter);
  process.pump();
  BOOST_TEST(told() == "0+6 2+2 6+0");
}

BOOST_AUTO_TEST_CASE(a_frame_that_is_not_answered_is_sent_again) {
  install(view());
  process.router->unbind(Incarnation{kStandby});  // what is sent meanwhile gets lost
  run(0, 4);
  process.router->bind(Incarnation{kStandby}, standby.port);
  run(4, 1);
  BOOST_TEST(told() == "");
  Instant now{1h};
  seat.port->tick(now);
  seat.port->tick(now + kFeedAnswerMax);
  process.pump();
  BOOST_TEST(told() == "0+4 4+1");
}

BOOST_AUTO_TEST_CASE(the_way_of_following_may_change_between_views) {
  install(view(StandbyPolicy::kKv));
  run(0, 20);
  BOOST_TEST(standby.program->held[SequenceId{5}] == 20U);
  install(view(StandbyPolicy::kInput));
  run(20, 1);
  BOOST_TEST(told() == "20+1");
  install(view(StandbyPolicy::kKv));
  run(21, 20);
  BOOST_TEST(told() == "20+1");
  BOOST_TEST(standby.program->held[SequenceId{5}] == 41U);
  // And it takes the seat with everything.
  View promoted = test::view_of(process, ++number, {kStandby, life(1)});
  BOOST_TEST(standby.set(promoted).value().sequences.at(0).length == 41U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe

// One life of a stage in the model: the frame path of actors/dataplane/stage_port with its real
// fence, journal and feed. A frame is fenced, run and answered in one step; the one case in which
// that can be told apart from what threads do (a view is installed while a micro-batch runs) is a
// step of its own, run_cut_short().
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/logic/journal.h"
#include "actors/logic/standby_feed.h"
#include "actors/logic/view_fence.h"
#include "actors/logic/watermarks.h"
#include "tests/model/bounds.h"
#include "tests/model/messages.h"
#include "tests/model/truth.h"

namespace troupe::model {

using KvRows = std::map<SequenceId, std::vector<uint64_t>>;  // [position]

class StageLife {
 public:
  StageLife(const Bounds& bounds, const Truth& truth, uint32_t stage, Incarnation incarnation);

  // False if the view names another life.
  bool install(const ViewPtr& view);
  StageHoldings held() const;
  bool would_take(const Frame& frame) const;  // the fence's word; changes nothing
  // True if it took the frame.
  bool take(const Frame& frame, Frames& out);
  // The standby's answer is overdue.
  void feed_again(Frames& out);
  // It was running when a view came: rows are written, and nobody hears of it.
  void run_cut_short(const Frame& frame);

  uint32_t stage;
  Incarnation incarnation;
  NodeFacts node;  // where it lives
  ViewFence fence;
  ViewPtr view;                          // null before the first
  std::optional<Incarnation> standby;    // who follows this seat, in the view
  bool seated = false;                   // or stands by
  std::map<Incarnation, uint64_t> sent;  // newest edge sequence, by receiver
  Journal journal;
  std::optional<StandbyFeed> feed;
  Incarnation fed;  // whom the feed is of
  Watermarks watermarks;
  KvRows kv;
  StageHoldings claimed;  // only with a planted fault: what it says it holds

 private:
  bool last() const { return stage + 1 == bounds_->stages; }
  bool run(const Frame& frame, Frame& output);
  void compute(const Frame& frame, Frames& out);
  void keep_output(const Frame& input, const Frame& output);
  void replay(const Frame& frame, Frames& out);
  void send_next(const Frame& input, std::vector<FrameSegment> segments, Frames& out);
  void refuse(const Frame& input, Frames& out);
  void feed_standby(Frames& out);
  void trim_journal(const Frame& frame, Frames& out);
  void tell_watermarks(Frames& out);
  void store(const Frame& frame);
  void write(SequenceId sequence, uint32_t position, uint64_t row);
  Frame frame_to(FrameKind kind, Incarnation receiver, const Frame& input);

  const Bounds* bounds_;
  const Truth* truth_;
};

}  // namespace troupe::model

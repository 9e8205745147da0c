// The data path of one stage, without an actor in it: frames come in on the transport's thread, are
// fenced, run on the compute thread, and their results leave from there. The stage actor owns it,
// installs views in it, and hears only of what is not routine.
//
// It also keeps the stage's part of recovery: the journal of what it sent, and the feed of its
// standby. It never decides what runs or in which order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "actors/dataplane/fault_points.h"
#include "actors/dataplane/frame_router.h"
#include "actors/dataplane/stage_compute.h"
#include "actors/logic/input_log.h"
#include "actors/logic/journal.h"
#include "actors/logic/standby_feed.h"
#include "actors/logic/view_fence.h"
#include "actors/logic/watermarks.h"
#include "base/metrics.h"
#include "base/view.h"
#include "transport/control.h"

namespace troupe {

inline constexpr uint32_t kFeedBatchRows = 16;   // of KV that wait before a frame leaves
inline constexpr uint32_t kFeedFrameRows = 256;  // of one frame
inline constexpr uint32_t kCheckRowsMax = 64;    // of input in one frame, if it is not one piece
inline constexpr size_t kInputLogBytesMax = size_t{64} << 20;
inline constexpr Duration kFeedAnswerMax = 2s;      // then the frame is taken for lost
inline constexpr Duration kCheckedAgainAfter = 1s;  // what was said may have been lost, too

struct StagePortOptions {
  std::string deployment;
  uint32_t stage = 0, stages = 1;
  Incarnation incarnation;
  Incarnation batcher;  // whose sequences the program may hold from the start; 0: of none
  std::shared_ptr<FrameRouter> router;
  uint64_t journal_bytes_max = 0;                    // 0: it keeps no journal
  std::function<void(const std::string& why)> fail;  // the stage cannot go on: its actor throws
};

class StagePort final : public FrameSink {
 public:
  explicit StagePort(StagePortOptions options);
  ~StagePort() override;

  // What compute is to be made with, and the compute itself; before anything else.
  ComputeEvents events(std::function<void(Result<StageMemory>)> loaded);
  void attach(std::unique_ptr<StageCompute> compute);
  void load(ProgramLoader loader);
  // No frame and no result passes any more; waits for the micro-batch that is running.
  void close();

  // `done` gets what the stage holds (nothing for a standby), or why the view is refused; where the
  // micro-batches run, behind the one that is running.
  using Installed = std::function<void(Result<StageHeld>)>;
  void set_view(const View& view, const Installed& done);
  // Makes up for lost frames of the standby's feed; call a few times a second.
  void tick(Instant now);
  void arm(const ArmedFault& fault) { faults_.arm(fault); }
  // Adds what it knows to the figures.
  void report(StageFigures& figures) const;

  void on_frame(FramePtr frame) override;  // transport's thread

 private:
  enum class Role : uint8_t { kNone, kSeat, kStandby };
  bool first() const { return options_.stage == 0; }
  bool last() const { return options_.stage + 1 == options_.stages; }

  // stage_port.cpp
  void take_view(const View& next, bool seated, bool same_batcher);
  bool starting();
  void computed(const FramePtr& input, const Result<StageOutput>& output, StageProgram& program);
  void deliver(const FramePtr& frame, const Result<StageOutput>& output, StageProgram& program);
  void send_next(const FrameHeader& input, SharedBuffer hidden);
  void send_sampled(const FrameHeader& input, const StageOutput& output);
  void refuse(const FrameHeader& input, const Error& why);
  void send(const std::vector<std::byte>& address, Frame frame);
  bool expects(const FrameHeader& header) const;
  Frame frame_to(FrameKind kind, Incarnation receiver, ViewNumber view, MicroBatchId micro_batch);

  // stage_recovery.cpp
  StageHeld held(StageProgram& program);
  void keep_output(const FrameHeader& input, const StageOutput& output);
  void replay(const FramePtr& frame);
  void feed_standby(StageProgram& program);
  std::vector<FeedLength> feed_lengths(const std::vector<SequenceHolding>& holdings) const;
  bool feed_rows(StageProgram& program, const std::vector<SequenceHolding>& holdings);
  void store_rows(const FramePtr& frame, StageProgram& program);
  void answer_lengths(const FrameHeader& fed, StageProgram& program);
  void stored(const FrameHeader& header);
  void trim_journal(const FrameHeader& header);
  void tell_watermarks();

  // stage_checks.cpp
  void log_input(const FramePtr& frame, const StageOutput& output);
  bool feed_input();
  void check_input(const FramePtr& frame, const Result<StageOutput>& output, StageProgram& program);
  void compare(const std::vector<FrameSegment>& segments, const std::vector<uint64_t>& outcomes);
  void say_checked();

  const StagePortOptions options_;
  FaultPoints faults_;
  std::mutex gate_;  // of compute_: it is used from outside only under this
  std::unique_ptr<StageCompute> compute_;

  mutable std::mutex mutex_;  // of everything below; never held while compute_ runs something
  ViewFence fence_;
  View view_;
  Role role_ = Role::kNone;
  const Standby* standby_ = nullptr;      // who follows this seat, in view_
  std::map<Incarnation, uint64_t> sent_;  // newest edge sequence, by receiver
  std::unique_ptr<Journal> journal_;      // from the first output on
  std::unique_ptr<StandbyFeed> feed_;
  Watermarks watermarks_;
  Incarnation fed_;                               // whom the feed is of …
  StandbyPolicy fed_how_ = StandbyPolicy::kNone;  // … and how
  Instant now_, feed_sent_, said_checked_;        // of the last tick, and at these
  // Under the `input` policy, as seat: what the standby has not checked yet, what ended meanwhile,
  // and sequences that need not go on, because the standby disagreed.
  std::unique_ptr<InputLog> inputs_;
  std::vector<SequenceId> feed_released_;
  std::set<SequenceId> disputed_;
  // As standby: how far each sequence came out the same here, and what did not.
  std::map<SequenceId, FrameSegment> checked_;
  LatencyHistogram hops_;
  uint64_t refused_ = 0;
};

}  // namespace troupe

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

#include "actors/dataplane/fault_points.h"
#include "actors/dataplane/frame_router.h"
#include "actors/dataplane/stage_compute.h"
#include "actors/logic/journal.h"
#include "actors/logic/standby_feed.h"
#include "actors/logic/view_fence.h"
#include "base/metrics.h"
#include "base/view.h"
#include "transport/control.h"

namespace troupe {

inline constexpr uint32_t kFeedBatchRows = 16;   // of KV that wait before a frame leaves
inline constexpr uint32_t kFeedFrameRows = 256;  // of one frame

struct StagePortOptions {
  std::string deployment;
  uint32_t stage = 0, stages = 1;
  Incarnation incarnation;
  Incarnation batcher;  // whose sequences the program may hold from the start; 0: of none
  std::shared_ptr<FrameRouter> router;
  uint64_t journal_bytes_max = 0;  // 0: it keeps no journal
  uint64_t poison_seed = 0;        // for tests: a request of this seed kills the process; 0: none
  std::function<void()> struck;    // a fault asks the stage actor to throw
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
  void store_rows(const FramePtr& frame, StageProgram& program);
  void stored(const FrameHeader& header);

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
  Incarnation fed_;  // whom the feed is of
  LatencyHistogram hops_;
  uint64_t refused_ = 0;
};

}  // namespace troupe

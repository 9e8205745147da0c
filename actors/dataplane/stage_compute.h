// Where a stage's arithmetic runs. In production a thread of its own, so that a micro-batch of any
// length never keeps an actor from answering; in simulation inline, so that a test is one thread.
// Both give the same results in the same order.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "models/stage_program.h"
#include "transport/frame.h"
#include "transport/peer/peer_links.h"

namespace troupe {

// Counters of one compute thread, read by the beat thread and by status.
struct ComputeFigures {
  std::atomic<uint64_t> started{0}, finished{0};  // micro-batches
  std::atomic<uint64_t> rows{0};
  std::atomic<uint64_t> busy_ns{0};
  LatencyHistogram steps;
};

// The compute threads of a process, for its beats: a fixed board, so that the beat thread never
// waits for anybody.
class ProgressBoard {
 public:
  static constexpr size_t kSlots = 256;
  // A slot, or nothing if all are taken (that stage's progress is then not watched).
  std::shared_ptr<ComputeFigures> take(uint32_t stage);
  void give_back(const std::shared_ptr<ComputeFigures>& figures);
  std::vector<Progress> read() const;

 private:
  struct Slot {
    std::atomic<bool> used{false};
    std::atomic<uint32_t> stage{0};
    std::shared_ptr<ComputeFigures> figures = std::make_shared<ComputeFigures>();
  };
  std::array<Slot, kSlots> slots_;
};

using ProgramLoader = std::function<Result<std::unique_ptr<StageProgram>>()>;

// Called where the work ran; must not throw.
struct ComputeEvents {
  std::function<void(Result<StageMemory>)> loaded;
  std::function<bool()> starting;  // before each micro-batch; false: it is not run, and never ends
  std::function<void(std::shared_ptr<Frame>, Result<StageOutput>, StageProgram&)> computed;
};
using ProgramJob = std::function<void(StageProgram&)>;

class StageCompute {
 public:
  virtual ~StageCompute() = default;  // waits for the micro-batch that is running
  virtual void load(ProgramLoader loader) = 0;
  // Runs in the order given. Frames of another view than the newest set_view() are dropped unrun.
  // False if `queue_max` frames wait already.
  virtual bool run(std::shared_ptr<Frame> frame) = 0;
  virtual void set_view(ViewNumber view) = 0;
  // Runs where micro-batches run, in order with them; dropped if there is no program.
  virtual void post(ProgramJob job) = 0;
  // A fault for tests: the thread takes work and never finishes it.
  virtual void hang() = 0;
  virtual const ComputeFigures& figures() const = 0;
};

using ComputeFactory =
    std::function<std::unique_ptr<StageCompute>(uint32_t stage, ComputeEvents events)>;

// Threads of their own, at a lower scheduling priority than the control actors. `board` may be
// null.
ComputeFactory threaded_compute(std::shared_ptr<ProgressBoard> board);
// At once, on the caller's thread.
ComputeFactory inline_compute();

// What a frame asks a stage program to do, and the frame's rows. Errors: kInvalidFrame.
struct StageInput {
  MicroBatch batch;
  std::vector<uint32_t> tokens;
};
Result<StageInput> stage_input(const FrameHeader& header);

}  // namespace troupe

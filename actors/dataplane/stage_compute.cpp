#include "actors/dataplane/stage_compute.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/time_slice.h"

namespace troupe {

std::shared_ptr<ComputeFigures> ProgressBoard::take(uint32_t stage) {
  for (Slot& slot : slots_) {
    bool free = false;
    if (!slot.used.compare_exchange_strong(free, true)) continue;
    slot.stage = stage;
    slot.figures->started = slot.figures->finished = slot.figures->rows = slot.figures->busy_ns = 0;
    slot.figures->steps.clear();
    return slot.figures;
  }
  return nullptr;
}

void ProgressBoard::give_back(const std::shared_ptr<ComputeFigures>& figures) {
  for (Slot& slot : slots_)
    if (slot.figures == figures) slot.used = false;
}

std::vector<Progress> ProgressBoard::read() const {
  std::vector<Progress> progress;
  for (const Slot& slot : slots_)
    if (slot.used) progress.push_back({slot.stage, slot.figures->started, slot.figures->finished});
  return progress;
}

Result<StageInput> stage_input(const FrameHeader& header) {
  StageInput input;
  input.batch.id = header.micro_batch;
  input.batch.released = header.released;
  input.batch.segments.reserve(header.segments.size());
  for (const FrameSegment& segment : header.segments) {
    if (header.kind == FrameKind::kTokens && segment.tokens.size() != segment.rows)
      return Error{ErrorCode::kInvalidFrame, fmt::format("segment of {} rows carries {} tokens",
                                                         segment.rows, segment.tokens.size())};
    input.batch.segments.push_back({segment.sequence, segment.position, segment.rows,
                                    segment.blocks, segment.sample, segment.sampling});
    input.tokens.insert(input.tokens.end(), segment.tokens.begin(), segment.tokens.end());
  }
  return input;
}

namespace {

constexpr size_t kQueueMax = 1024;
constexpr int kComputeNice = 5;  // below the control actors and the beat thread

// Runs one frame and counts it.
Result<StageOutput> execute(StageProgram& program, const Frame& frame, ComputeFigures& figures) {
  auto input = stage_input(frame.header);
  if (!input.ok()) return input.error();
  figures.started.fetch_add(1);
  const Instant start = steady_now();
  auto output = program.run(input.value().batch, input.value().tokens, frame.payload);
  const Duration took = steady_now() - start;
  figures.busy_ns.fetch_add(static_cast<uint64_t>(took.count()));
  figures.steps.record(took);
  figures.rows.fetch_add(input.value().batch.rows());
  figures.finished.fetch_add(1);
  return output;
}

class ThreadedCompute final : public StageCompute {
 public:
  ThreadedCompute(uint32_t stage, ComputeEvents events, std::shared_ptr<ProgressBoard> board)
      : events_(std::move(events)), board_(std::move(board)) {
    if (board_) figures_ = board_->take(stage);
    if (!figures_) {
      board_ = nullptr;
      figures_ = std::make_shared<ComputeFigures>();
    }
    thread_ = std::thread([this] { loop(); });
  }

  ~ThreadedCompute() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (board_) board_->give_back(figures_);
  }

  void load(ProgramLoader loader) override { enqueue({std::move(loader), nullptr, nullptr}); }
  bool run(std::shared_ptr<Frame> frame) override {
    return enqueue({nullptr, std::move(frame), nullptr});
  }
  void post(ProgramJob job) override { enqueue({nullptr, nullptr, std::move(job)}); }
  void set_view(ViewNumber view) override { view_ = view.value; }

  void hang() override { hanging_ = true; }
  const ComputeFigures& figures() const override { return *figures_; }

 private:
  struct Job {
    ProgramLoader loader;
    std::shared_ptr<Frame> frame;
    ProgramJob job;
  };

  bool enqueue(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (job.frame && queue_.size() >= kQueueMax) return false;
      queue_.push_back(std::move(job));
    }
    wake_.notify_one();
    return true;
  }

  void loop() {
    pthread_setname_np(pthread_self(), "compute");
    // On Linux the nice value belongs to the thread; failure only costs responsiveness.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kComputeNice);
    (void)set_time_slice(kComputeSlice);
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      if (job.loader)
        load_now(job.loader);
      else if (job.frame)
        run_now(job.frame);
      else if (program_)
        job.job(*program_);
    }
  }

  void load_now(const ProgramLoader& loader) {
    auto program = loader();
    if (!program.ok()) {
      events_.loaded(program.error());
      return;
    }
    program_ = std::move(program).value();
    events_.loaded(program_->memory());
  }

  void run_now(const std::shared_ptr<Frame>& frame) {
    if (!program_ || frame->header.view.value != view_) return;  // its view was replaced meanwhile
    if (!events_.starting()) hanging_ = true;
    if (hanging_) {
      figures_->started.fetch_add(1);
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_; });
      return;
    }
    events_.computed(frame, execute(*program_, *frame, *figures_), *program_);
  }

  ComputeEvents events_;
  std::shared_ptr<ProgressBoard> board_;
  std::shared_ptr<ComputeFigures> figures_;
  std::atomic<uint64_t> view_{0};
  std::atomic<bool> hanging_{false};
  std::unique_ptr<StageProgram> program_;  // touched by the thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

class InlineCompute final : public StageCompute {
 public:
  explicit InlineCompute(ComputeEvents events) : events_(std::move(events)) {}

  void load(ProgramLoader loader) override {
    auto program = loader();
    if (!program.ok()) {
      events_.loaded(program.error());
      return;
    }
    program_ = std::move(program).value();
    events_.loaded(program_->memory());
  }

  bool run(std::shared_ptr<Frame> frame) override {
    if (!program_ || frame->header.view != view_) return true;
    if (!hanging_ && !events_.starting()) hanging_ = true;
    if (!hanging_) events_.computed(frame, execute(*program_, *frame, figures_), *program_);
    return true;
  }

  void set_view(ViewNumber view) override { view_ = view; }
  void post(ProgramJob job) override {
    if (program_ && !hanging_) job(*program_);
  }

  void hang() override { hanging_ = true; }
  const ComputeFigures& figures() const override { return figures_; }

 private:
  ComputeEvents events_;
  ComputeFigures figures_;
  ViewNumber view_;
  bool hanging_ = false;
  std::unique_ptr<StageProgram> program_;
};

}  // namespace

ComputeFactory threaded_compute(std::shared_ptr<ProgressBoard> board) {
  return [board](uint32_t stage, ComputeEvents events) -> std::unique_ptr<StageCompute> {
    return std::make_unique<ThreadedCompute>(stage, std::move(events), board);
  };
}

ComputeFactory inline_compute() {
  return [](uint32_t, ComputeEvents events) -> std::unique_ptr<StageCompute> {
    return std::make_unique<InlineCompute>(std::move(events));
  };
}

}  // namespace troupe

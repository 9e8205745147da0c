#include "tests/sim/virtual_compute.h"

#include <deque>

namespace troupe::sim {
namespace {

// Outlives the StageCompute while an event of it is still to come.
class Thread final : public std::enable_shared_from_this<Thread> {
 public:
  Thread(uint32_t stage, ComputeEvents events, VirtualComputeOptions options)
      : stage_(stage), events_(std::move(events)), options_(std::move(options)) {}

  struct Job {
    ProgramLoader loader;
    std::shared_ptr<Frame> frame;
    ProgramJob job;
  };
  void enqueue(Job job) {
    queue_.push_back(std::move(job));
    next();
  }
  void set_view(ViewNumber view) { view_ = view; }
  void hang() { hanging_ = true; }
  void end() {
    ended_ = true;
    queue_.clear();
    program_ = nullptr;
  }
  const std::shared_ptr<ComputeFigures>& figures() const { return figures_; }

 private:
  void next() {
    while (!busy_ && !ended_ && !queue_.empty()) {
      Job job = std::move(queue_.front());
      queue_.pop_front();
      if (job.loader)
        later(options_.load_time(), [loader = std::move(job.loader)](Thread& me) {
          auto program = loader();
          if (!program.ok()) return me.events_.loaded(program.error());
          me.program_ = std::move(program).value();
          me.events_.loaded(me.program_->memory());
        });
      else if (job.frame)
        start(job.frame);
      else if (program_)
        job.job(*program_);
    }
  }

  void later(Duration delay, std::function<void(Thread&)> action) {
    busy_ = true;
    options_.after(delay, [me = weak_from_this(), action = std::move(action)] {
      const auto thread = me.lock();
      if (!thread || thread->ended_) return;
      action(*thread);
      thread->busy_ = false;
      thread->next();
    });
  }

  void start(const std::shared_ptr<Frame>& frame) {
    if (!program_ || frame->header.view != view_) return;  // its view was replaced meanwhile
    options_.witness->computes(options_.life, stage_, *frame);
    if (options_.hangs() || !events_.starting()) hanging_ = true;
    figures_->started.fetch_add(1);
    if (hanging_) {
      busy_ = true;  // for ever
      return;
    }
    const Duration step = options_.step_time();
    later(step, [frame, step](Thread& me) {
      auto input = stage_input(frame->header);
      auto output =
          input.ok() ? me.program_->run(input.value().batch, input.value().tokens, frame->payload)
                     : Result<StageOutput>(input.error());
      me.figures_->busy_ns.fetch_add(static_cast<uint64_t>(step.count()));
      me.figures_->steps.record(step);
      if (input.ok()) me.figures_->rows.fetch_add(input.value().batch.rows());
      me.figures_->finished.fetch_add(1);
      me.events_.computed(frame, std::move(output), *me.program_);
    });
  }

  const uint32_t stage_;
  const ComputeEvents events_;
  const VirtualComputeOptions options_;
  const std::shared_ptr<ComputeFigures> figures_ = std::make_shared<ComputeFigures>();
  std::deque<Job> queue_;
  std::unique_ptr<StageProgram> program_;
  ViewNumber view_;
  bool busy_ = false, hanging_ = false, ended_ = false;
};

class VirtualCompute final : public StageCompute {
 public:
  explicit VirtualCompute(std::shared_ptr<Thread> thread) : thread_(std::move(thread)) {}
  ~VirtualCompute() override { thread_->end(); }
  void load(ProgramLoader loader) override { thread_->enqueue({std::move(loader), {}, {}}); }
  bool run(std::shared_ptr<Frame> frame) override {
    thread_->enqueue({{}, std::move(frame), {}});
    return true;
  }
  void set_view(ViewNumber view) override { thread_->set_view(view); }
  void post(ProgramJob job) override { thread_->enqueue({{}, {}, std::move(job)}); }
  void hang() override { thread_->hang(); }
  const ComputeFigures& figures() const override { return *thread_->figures(); }

 private:
  std::shared_ptr<Thread> thread_;
};

}  // namespace

ComputeFactory virtual_compute(VirtualComputeOptions options) {
  return [options](uint32_t stage, ComputeEvents events) -> std::unique_ptr<StageCompute> {
    auto thread = std::make_shared<Thread>(stage, std::move(events), options);
    options.watch(stage, thread->figures());
    return std::make_unique<VirtualCompute>(std::move(thread));
  };
}

}  // namespace troupe::sim

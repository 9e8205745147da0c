// The batcher: hands logic/batching its facts (requests, sampled tokens, views, time) and sends
// what it plans. On the head, one a replica. Frames do not pass through the actor: the port plans
// the next micro-batch where the last one's answer arrived, on the transport's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "actors/logic/batching.h"
#include "actors/logic/view_fence.h"
#include "actors/messages.h"

namespace troupe {

struct BatcherOptions {
  BatchingLimits limits;
  Incarnation incarnation;
  std::shared_ptr<FrameRouter> router;
  BatchListener listener;  // the gateway
  Duration tick = 100ms;
};

// Any thread may call; one at a time gets in, and none waits for anything inside.
class BatcherPort final : public FrameSink {
 public:
  BatcherPort(BatcherOptions options, std::function<Instant()> now);

  Result<void> submit(BatchRequest request);
  void cancel(const RequestId& id);
  void start(const StartView& order);
  void stop(const StopView& order);
  void tick();
  BatchingFigures figures() const;
  void on_frame(FramePtr frame) override;

 private:
  // Under mutex_.
  void take(const FrameHeader& header);
  void plan();
  void send(const PlannedBatch& batch);
  void report(std::vector<BatchEvent> events);

  const BatcherOptions options_;
  const std::function<Instant()> now_;
  mutable std::mutex mutex_;
  Batching batching_;
  ViewFence fence_;
  View view_;
  bool serving_ = false;
  std::map<Incarnation, uint64_t> sent_;  // newest edge sequence, by receiver
};

struct BatcherState {
  static inline const char* name = "batcher";
  std::shared_ptr<FrameRouter> router;
  Incarnation incarnation;
  std::shared_ptr<BatcherPort> port;
  ~BatcherState();
};

BatcherActor::behavior_type batcher_actor(BatcherActor::stateful_pointer<BatcherState> self,
                                          BatcherOptions options);

}  // namespace troupe

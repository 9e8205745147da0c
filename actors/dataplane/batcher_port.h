// The data path of a batcher: hands logic/batching its facts (requests, sampled tokens, views,
// time) and sends what it plans. The next micro-batch is planned where the last one's answer
// arrived, on the transport's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/dataplane/frame_router.h"
#include "actors/logic/batching.h"
#include "actors/logic/view_fence.h"
#include "base/view.h"
#include "transport/control.h"

namespace troupe {

struct BatcherPortOptions {
  BatchingLimits limits;
  Incarnation incarnation;
  std::shared_ptr<FrameRouter> router;
  std::function<void(std::vector<BatchEvent>)> listener;  // in order; must not block or call back
  std::function<Instant()> now;
  // Lives whose results are wrong, or in doubt; must not block or call back. May be empty.
  std::function<void(std::vector<WrongResult>)> accuse{};
};

// Any thread may call; one at a time gets in, and none waits for anything inside.
class BatcherPort final : public FrameSink {
 public:
  explicit BatcherPort(BatcherPortOptions options);

  Result<void> submit(BatchRequest request);
  void cancel(const RequestId& id);
  // `held`: what the view's stages hold; if one is missing, nobody holds anything.
  void start(const View& view, const std::vector<StageHeld>& held);
  // `crashed`: a stage that ended by itself, so what is in flight is under suspicion.
  void stop(const std::string& why, std::optional<uint32_t> crashed);
  void tick();
  BatchingFigures figures() const;
  void on_frame(FramePtr frame) override;

 private:
  // Under mutex_.
  void take(const FrameHeader& header);
  void take_checked(const FrameHeader& header);
  void plan();
  void send(const PlannedBatch& batch);
  void report(std::vector<BatchEvent> events);

  const BatcherPortOptions options_;
  mutable std::mutex mutex_;
  Batching batching_;
  ViewFence fence_;
  View view_;
  bool serving_ = false;
  std::map<Incarnation, uint64_t> sent_;  // newest edge sequence, by receiver
};

}  // namespace troupe

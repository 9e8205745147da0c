// The batcher of the model: actors/dataplane/batcher_port with its real Batching and fence, and
// what its clients were shown.
#pragma once

#include <map>
#include <vector>

#include "actors/logic/batching.h"
#include "actors/logic/view_fence.h"
#include "tests/model/bounds.h"
#include "tests/model/messages.h"
#include "tests/model/truth.h"

namespace troupe::model {

class Batcher {
 public:
  Batcher(const Bounds& bounds, const Truth& truth, Incarnation incarnation);

  void start(const StartView& order, Instant now, Frames& out);
  void stop(const StopView& order);
  bool would_take(const Frame& frame) const;
  bool take(const Frame& frame, Instant now, Frames& out);
  void tick(Instant now, Frames& out);
  bool finished() const;

  Incarnation incarnation;
  Batching batching;
  ViewFence fence;
  ViewPtr view;  // null before the first
  bool serving = false;
  std::map<Incarnation, uint64_t> sent;
  std::vector<uint32_t> shown;  // [request] tokens that its client saw
  std::vector<bool> ended;      // [request]

 private:
  void plan(Instant now, Frames& out);
  void send(const PlannedBatch& batch, Frames& out);
  void show(const std::vector<BatchEvent>& events);

  const Bounds* bounds_;
  const Truth* truth_;
};

}  // namespace troupe::model

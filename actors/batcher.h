// The batcher actor: hands logic/batching its facts (requests, sampled tokens, views, time) and
// sends what it plans. Beside stage 0, one a replica.
#pragma once

#include <memory>

#include "actors/logic/batching.h"
#include "actors/logic/view_fence.h"
#include "actors/messages.h"

namespace troupe {

struct BatcherOptions {
  BatchingLimits limits;
  Incarnation incarnation;
  LinkActor link;
  BatchListener listener;  // the gateway
  Duration tick = 100ms;
};

struct BatcherState {
  static inline const char* name = "batcher";
  BatcherActor::stateful_pointer<BatcherState> self = nullptr;
  BatcherOptions options;
  std::unique_ptr<Batching> batching;
  std::unique_ptr<ViewFence> fence;
  View view;
  bool serving = false;
  uint64_t next_edge_sequence = 1;

  void start(const View& next);
  void arrived(const FrameHeader& header);
  void plan();
  void send(const PlannedBatch& batch);
  void report(std::vector<BatchEvent> events);
};

BatcherActor::behavior_type batcher_actor(BatcherActor::stateful_pointer<BatcherState> self,
                                          BatcherOptions options);

}  // namespace troupe

// The batcher actor: owns its data path (dataplane/batcher_port.h), passes requests and views on to
// it and its events to the gateway. On the head, one a replica.
#pragma once

#include <memory>

#include "actors/dataplane/batcher_port.h"
#include "actors/messages.h"

namespace troupe {

struct BatcherOptions {
  BatchingLimits limits;
  Incarnation incarnation;
  std::shared_ptr<FrameRouter> router;
  BatchListener listener;  // the gateway
  Duration tick = 100ms;
};

struct BatcherState {
  static inline const char* name = "batcher";
  std::shared_ptr<FrameRouter> router;
  Incarnation incarnation;
  std::shared_ptr<BatcherPort> port;
  ResultsWatcher watcher;  // the scheduler
  ~BatcherState();
};

BatcherActor::behavior_type batcher_actor(BatcherActor::stateful_pointer<BatcherState> self,
                                          BatcherOptions options);

}  // namespace troupe

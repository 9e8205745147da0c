// The stage actor: one layer range of a replica. It fences what arrives, hands it to its compute
// thread, and passes the result on: activations to the next stage, sampled tokens to the batcher.
// It never decides what runs or in which order.
#pragma once

#include <memory>

#include "actors/logic/view_fence.h"
#include "actors/messages.h"
#include "actors/owed_promise.h"
#include "actors/stage_compute.h"
#include "base/metrics.h"

namespace troupe {

// Makes the program a stage runs; the default loads a TransformerStage, simulation puts something
// cheaper here.
using ProgramMaker =
    std::function<Result<std::unique_ptr<StageProgram>>(const StageSpec&, ModelPtr)>;
ProgramMaker transformer_programs();

struct StageOptions {
  StageSpec spec;
  Incarnation incarnation;
  LinkActor link;
  ModelRegistry registry;
  std::vector<std::byte> data_address;  // of this process's transport
  uint64_t process = 0;
  Duration open_max = 300s;  // for the model file to be opened and checked
  ComputeFactory compute;
  ProgramMaker programs;
};

struct StageState {
  static inline const char* name = "stage";

  explicit StageState() = default;
  ~StageState();

  StageActor::stateful_pointer<StageState> self = nullptr;
  StageOptions options;
  std::unique_ptr<ViewFence> fence;
  std::unique_ptr<StageCompute> compute;
  OwedPromise<StageStarted> starting;
  View view;
  StageMemory memory;
  uint64_t next_edge_sequence = 1;  // to the next stage
  uint64_t next_batcher_sequence = 1;
  LatencyHistogram hops;
  std::string armed_fault;
  Instant born;
  uint64_t refused = 0;

  bool first() const { return options.spec.stage == 0; }
  bool last() const { return options.spec.stage + 1 == options.spec.stages; }

  void start(OwedPromise<StageStarted> promise);
  void open_failed(Error why);
  void loaded(const ProgramLoaded& loaded);
  void arrived(const FramePtr& frame);
  void computed(const StageComputed& result);
  void send_next(const Frame& input, const StageOutput& output);
  void send_sampled(const Frame& input, const StageOutput& output);
  void refuse(const FrameHeader& input, const Error& why);
  ViewSet set_view(const View& next);
  StageFigures figures() const;
};

StageActor::behavior_type stage_actor(StageActor::stateful_pointer<StageState> self,
                                      StageOptions options);

}  // namespace troupe

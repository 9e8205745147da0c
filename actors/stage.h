// The stage actor: one layer range of a replica. It loads the model, installs views and reports;
// frames pass by it, through its StagePort.
#pragma once

#include <memory>

#include "actors/dataplane/stage_compute.h"
#include "actors/dataplane/stage_port.h"
#include "actors/messages.h"
#include "actors/owed_promise.h"

namespace troupe {

// Makes the program a stage runs; the default loads a TransformerStage, simulation puts something
// cheaper here.
using ProgramMaker =
    std::function<Result<std::unique_ptr<StageProgram>>(const StageSpec&, ModelPtr)>;
struct ProgramOptions {
  // A descriptor whose memory outlives this process and may hold what a predecessor of the same
  // stage computed; -1: none.
  int memory = -1;
  bool split_k = false;  // for tests: kernels whose bits depend on their batch
};
ProgramMaker transformer_programs(ProgramOptions options = {});

struct StageOptions {
  StageSpec spec;
  Incarnation incarnation;
  std::shared_ptr<FrameRouter> router;
  ModelRegistry registry;
  std::vector<std::byte> data_address;  // of this process's transport
  uint64_t process = 0;
  Duration open_max = 300s;  // for the model file to be opened and checked
  ComputeFactory compute;
  ProgramMaker programs;
  uint64_t poison_seed = 0;  // as of StagePortOptions
};

struct StageState {
  static inline const char* name = "stage";

  explicit StageState() = default;
  ~StageState();

  StageActor::stateful_pointer<StageState> self = nullptr;
  StageOptions options;
  std::shared_ptr<StagePort> port;
  const ComputeFigures* computing = nullptr;  // the port's
  OwedPromise<StageStarted> starting;
  StageMemory memory;
  Instant born;

  void build();
  void start(OwedPromise<StageStarted> promise);
  void open_failed(Error why);
  void loaded(const ProgramLoaded& loaded);
  void set_view(const View& next, OwedPromise<ViewSet> promise);
  void arm(const std::string& fault);
  StageFigures figures() const;
};

StageActor::behavior_type stage_actor(StageActor::stateful_pointer<StageState> self,
                                      StageOptions options);

}  // namespace troupe

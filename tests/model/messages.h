// What is in flight in the model: frames between batcher and stages, and what scheduler, nodes,
// ledger and batcher tell each other. As on the wire, but rows are numbers, and a view is shared.
#pragma once

#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "actors/logic/recovery.h"
#include "actors/logic/resume.h"
#include "base/ids.h"
#include "base/view.h"

namespace troupe::model {

enum class FrameKind : uint8_t {
  kTokens,
  kActivations,
  kReplay,
  kSampled,
  kRefused,
  kKvRows,
  kKvStored,
  kWatermarks
};

struct FrameSegment {
  SequenceId sequence;
  uint32_t position = 0;  // of the first row; of kKvStored and kWatermarks: the length that is held
  uint32_t rows = 0;
  bool sample = false;
  std::vector<uint64_t> values;  // [rows] tokens, activations or KV; kReplay and lengths: none
};

struct Frame {
  FrameKind kind = FrameKind::kTokens;
  ViewNumber view;
  Incarnation sender, receiver;
  uint64_t edge_sequence = 0;
  MicroBatchId micro_batch;
  uint32_t exit_stage = kToTheEnd;
  std::vector<FrameSegment> segments;
  std::vector<SequenceId> released;
};

using ViewPtr = std::shared_ptr<const View>;

// Scheduler to node: as AssignAction and StopAction, and
struct InstallView {
  ViewPtr view;
};
// Node to scheduler.
struct StageLost {
  uint32_t stage = 0;
  Incarnation incarnation;
  bool restarting = false;
};
struct StageReady {
  uint32_t stage = 0;
  Seat seat;
};
struct ViewInstalled {
  ViewNumber view;
  std::vector<uint32_t> stages;            // that have their seat on this node
  std::map<uint32_t, StageHoldings> held;  // by stage
};
// Ledger to scheduler.
struct SwapAnswer {
  ViewNumber asked, newest;
  bool committed = false;
};
// Scheduler to batcher.
struct StartView {
  ViewPtr view;
  std::map<uint32_t, StageHoldings> held;
};
struct StopView {
  std::optional<uint32_t> crashed;
};

using Message = std::variant<Frame, AssignAction, StopAction, InstallView, StageLost, StageReady,
                             ViewInstalled, SwapAnswer, StartView, StopView>;
using MessagePtr = std::shared_ptr<const Message>;
using Frames = std::vector<Frame>;

}  // namespace troupe::model

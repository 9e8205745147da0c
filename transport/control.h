// Control messages between nodes, as values, and their bytes (schemas/control.capnp). Decoding
// trusts no byte: every list and text is limited.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/view.h"

namespace troupe {

// worker -> head after the hello: what the node has.
struct NodeInventory {
  uint64_t memory_bytes = 0;       // of the machine, total
  uint64_t memory_free_bytes = 0;  // offered to stages
  uint32_t cores = 0;
  uint32_t stages_max = 0;  // 0: no own limit
  std::string kernels;      // "avx2", "reference"
  std::string software;     // version, for people
  uint64_t process = 0;     // process id of the daemon, for people
};

// What a deployment is, to a stage. Everything that fixes output bits is here or in the model file.
struct StageSpec {
  std::string deployment;
  std::string model_path;  // on the node's own file system
  std::string content_id;  // the model's; refused if the file there differs
  uint32_t stage = 0;
  uint32_t stages = 1;
  LayerRange layers;
  uint32_t kv_blocks = 0;  // of 64 positions, equal in all stages of a replica
  uint32_t threads = 1;
  uint32_t rows_max = 0;  // of a micro-batch
  std::string kernels = "auto";
  uint64_t journal_bytes = 0;  // of its output that it keeps for the next stage; 0: nothing
  Incarnation batcher;         // whose sequences its kept KV memory may hold; 0: unknown
};

// head -> node -> stage process: load this. Answer: StageReady or ControlError.
struct AssignStage {
  StageSpec spec;
};
struct StageReady {
  std::string deployment;
  uint32_t stage = 0;
  LayerRange layers;
  Incarnation incarnation;
  std::vector<std::byte> data_address;
  uint64_t process = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
};
// node -> head, unasked: a stage ended; its supervisor is starting it again or has given up.
struct StageLost {
  std::string deployment;
  uint32_t stage = 0;
  Incarnation incarnation;
  std::string cause;  // "killed by signal 9", "threw: …"
  bool restarting =
      false;  // a StageReady with a new incarnation follows, or a StageLost with restarting = false
};
// What a stage has of a sequence when it installs a view: KV of positions [0, length), and its
// output of positions [journal_first, journal_end) in its journal.
struct SequenceHeld {
  SequenceId sequence;
  uint32_t length = 0;
  uint32_t journal_first = 0, journal_end = 0;
  friend bool operator==(const SequenceHeld&, const SequenceHeld&) = default;
};
struct StageHeld {
  uint32_t stage = 0;
  std::vector<SequenceHeld> sequences;
  friend bool operator==(const StageHeld&, const StageHeld&) = default;
};
// head -> everyone: from now on this view. Answer: ViewInstalled.
struct InstallView {
  View view;
};
struct ViewInstalled {
  std::string deployment;
  ViewNumber view;
  std::vector<StageHeld> held;  // of the node's seats in this view
};
// head -> node -> stage process: end it; no answer.
struct StopStage {
  std::string deployment;
  uint32_t stage = 0;
};
// stage -> node -> head, every second and when it changes much.
struct StageFigures {
  std::string deployment;
  uint32_t stage = 0;
  Incarnation incarnation;
  uint64_t micro_batches = 0, rows = 0;
  uint64_t busy_ns = 0, idle_ns = 0;  // of the compute thread since the start
  uint64_t hop_p50_ns = 0,
           hop_p99_ns = 0;  // frame sent there to frame arrived here (one host only)
  uint64_t step_p50_ns = 0, step_p99_ns = 0;  // computing one micro-batch
  uint64_t fenced_frames = 0, garbage_frames = 0;
  uint64_t weight_bytes = 0, kv_bytes = 0, resident_bytes = 0;
  uint64_t journal_bytes = 0;   // of output kept for stages that may have to catch up
  Incarnation standby;          // that follows this stage; 0: there is none
  uint64_t standby_behind = 0;  // rows of the KV cache that it has not acknowledged
};
// operator -> … -> stage, only in daemons started with --allow-fault-injection.
struct InjectFault {
  std::string deployment;
  uint32_t stage = 0;
  // "throw": the stage actor throws at its next micro-batch; "kill": its process is killed;
  // "hang": its compute thread takes work and never finishes it.
  std::string fault;
};
// head -> worker: you were declared dead (or the head restarted): drop all stages, come back as a
// new incarnation.
struct Evicted {
  std::string why;
};
// worker -> head: I am leaving in order; place my stages elsewhere.
struct Leaving {
  std::string why;
};
struct ControlError {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};
struct Acknowledged {};

using ControlBody = std::variant<NodeInventory, AssignStage, StageReady, StageLost, InstallView,
                                 ViewInstalled, StopStage, StageFigures, InjectFault, Evicted,
                                 Leaving, ControlError, Acknowledged>;

struct ControlMessage {
  uint64_t call = 0;  // != 0: an answer with the same number is expected, or this is that answer
  bool answer = false;
  ControlBody body;
};

// Limits, the same for sender and receiver; the schema states them field by field.
inline constexpr size_t kControlMessageMax = size_t{8} << 20;
inline constexpr size_t kDeploymentMax = 256;    // bytes of a name
inline constexpr size_t kModelPathMax = 4096;    // bytes
inline constexpr size_t kControlTextMax = 4096;  // bytes of text for people; longer text is cut
inline constexpr uint32_t kStagesMax = 1024;     // of a replica
inline constexpr uint32_t kLayersMax = 65536;
inline constexpr size_t kSequencesHeldMax = 65536;  // of one stage

// kInvalidArgument: above a limit, or a name that is none; the message says which field. Text for
// people (causes, reasons, error messages) is never the reason: it is cut and cleaned of what is
// not printable UTF-8.
Result<SharedBuffer> encode_control(const ControlMessage& message);
// kInvalidFrame. Never throws, whatever the bytes. What it returns is within the limits.
Result<ControlMessage> decode_control(ByteSpan bytes);

// A node id is 1 to 64 of A-Z a-z 0-9 . _ / -; kInvalidArgument otherwise.
Result<void> check_node_id(const NodeId& node);

}  // namespace troupe

# Control messages between processes, one per packet of a peer link. How a schema may change: fields
# are added at the end with the next number and a default that means "as before"; none is removed,
# renumbered or given another meaning. A body that a receiver does not know is refused, so new
# bodies need a higher protocol number in the hello.
@0xb2f5c1a97d3e4081;

using Cxx = import "/capnp/c++.capnp";
using Common = import "/schemas/common.capnp";
$Cxx.namespace("troupe::wire::control");

struct ControlMessage {
  call @0 :UInt64;
  # 0: no answer is expected. Else chosen by the caller, not used twice on one link in one
  # direction; the answer carries the same number.
  answer @1 :Bool;
  # True: this answers the call of that number, which the receiver made.
  body :union {
    acknowledged @2 :Void;
    # Carried out; nothing to report.
    inventory @3 :NodeInventory;
    assignStage @4 :StageSpec;
    # Load this stage. Answered by stageReady or error.
    stageReady @5 :StageReady;
    stageLost @6 :StageLost;
    installView @7 :View;
    # From now on this view. Answered by viewInstalled.
    viewInstalled @8 :ViewInstalled;
    stopStage @9 :StopStage;
    figures @10 :StageFigures;
    injectFault @11 :InjectFault;
    evicted @12 :Text;
    # Head to worker: you were declared dead, or the head began anew: drop all stages and come back
    # as a new incarnation. The text says why, for people; at most 4096 bytes.
    leaving @13 :Text;
    # Worker to head: I leave in order, place my stages elsewhere. The text says why; at most 4096
    # bytes.
    error @14 :Common.Failure;
    # The call could not be carried out.
  }
}

struct NodeInventory {
  # What a node has. Worker to head, after the link came up.
  memoryBytes @0 :UInt64;      # of the machine, total
  memoryFreeBytes @1 :UInt64;  # offered to stages; at most memoryBytes
  cores @2 :UInt32;            # processors this process may use
  stagesMax @3 :UInt32;        # stages it takes at most; 0: no limit of its own
  kernels @4 :Text;            # kernel set, for example "avx2"; at most 64 bytes
  software @5 :Text;           # version, for people; at most 256 bytes
  process @6 :UInt64;          # process id of the daemon, for people
}

struct StageSpec {
  # What a deployment is, to one stage.
  deployment @0 :Text;    # 1 to 256 bytes
  modelPath @1 :Text;     # on the receiving node's file system; 1 to 4096 bytes
  contentId @2 :Text;     # of the model: refused if the file there differs; at most 128 bytes
  stage @3 :UInt32;       # from 0, below stages
  stages @4 :UInt32;      # of the replica; 1 to 1024
  layers @5 :Common.LayerRange;  # that this stage executes
  kvBlocks @6 :UInt32;    # of 64 positions; equal in all stages of a replica; at most 2^24
  threads @7 :UInt32;     # of computation; at most 4096
  rowsMax @8 :UInt32;     # of one micro-batch; at most 2^20
  kernels @9 :Text;       # kernel set, "auto" for the best one there is; at most 64 bytes
  journalBytes @10 :UInt64;  # of its output that it keeps for the next stage; 0: nothing
  batcher @11 :UInt64;    # incarnation whose sequences its kept KV memory may hold; 0: unknown
}

struct StageReady {
  # A stage has its weights and takes frames.
  deployment @0 :Text;      # 1 to 256 bytes
  stage @1 :UInt32;         # below 1024
  layers @2 :Common.LayerRange;
  incarnation @3 :UInt64;   # of the stage actor
  dataAddress @4 :Data;     # of its process's transport, opaque; at most 4096 bytes
  process @5 :UInt64;       # operating system's process id, for people
  weightBytes @6 :UInt64;   # memory its weights take
  kvBytes @7 :UInt64;       # memory its KV blocks take
}

struct StageLost {
  # A stage ended, unasked.
  deployment @0 :Text;      # 1 to 256 bytes
  stage @1 :UInt32;         # below 1024
  incarnation @2 :UInt64;   # of the stage actor that ended
  cause @3 :Text;           # for people, for example "killed by signal 9"; at most 4096 bytes
  restarting @4 :Bool;      # true: a stageReady (new incarnation) or a final stageLost follows
}

struct Seat {
  # One stage of a view.
  node @0 :Text;             # node id: 1 to 64 of A-Z a-z 0-9 . _ / -
  nodeIncarnation @1 :UInt64;
  incarnation @2 :UInt64;    # of the stage actor; frames from another one are fenced
  layers @3 :Common.LayerRange;
  dataAddress @4 :Data;      # of its process's transport, opaque; at most 4096 bytes
  process @5 :UInt64;        # operating system's process id there, for people
}

struct View {
  # Who executes which layers of a deployment, under a number that only grows.
  deployment @0 :Text;       # 1 to 256 bytes
  number @1 :UInt64;         # from 1
  batcher @2 :UInt64;        # incarnation: where the last stage sends sampled tokens
  batcherAddress @3 :Data;   # of the batcher's transport, opaque; at most 4096 bytes
  seats @4 :List(Seat);      # by stage; 1 to 1024
  standbys @5 :List(Standby);  # ascending by stage, at most one a stage
}

struct Standby {
  # Who follows a stage and can take its seat.
  stage @0 :UInt32;  # below the number of seats
  seat @1 :Seat;
  follows @2 :StandbyWay;
}

enum StandbyWay {
  # What a standby is sent.
  kv @0;     # rows of the stage's KV cache
  input @1;  # the stage's input: it executes that, too, and compares what comes out
}

struct ViewInstalled {
  deployment @0 :Text;  # 1 to 256 bytes
  view @1 :UInt64;      # the number now in force there
  stage @2 :UInt32;     # obsolete
  held @3 :List(StageHeld);  # of the node's seats in this view; at most 1024
}

struct StageHeld {
  # What a stage has of the sequences it knows, when it installed a view.
  stage @0 :UInt32;  # below 1024
  sequences @1 :List(SequenceHeld);  # at most 65536
}

struct SequenceHeld {
  sequence @0 :UInt64;
  length @1 :UInt32;        # KV of positions [0, length)
  journalFirst @2 :UInt32;  # its output of positions [journalFirst, journalEnd) is kept
  journalEnd @3 :UInt32;
}

struct StopStage {
  # End this stage; there is no answer.
  deployment @0 :Text;  # 1 to 256 bytes
  stage @1 :UInt32;     # below 1024
}

struct StageFigures {
  # What a stage did since its incarnation began; several times a second.
  deployment @0 :Text;       # 1 to 256 bytes
  stage @1 :UInt32;          # below 1024
  incarnation @2 :UInt64;
  microBatches @3 :UInt64;   # executed
  rows @4 :UInt64;           # executed
  busyNs @5 :UInt64;         # nanoseconds in which the compute thread computed
  idleNs @6 :UInt64;         # nanoseconds in which it waited
  hopP50Ns @7 :UInt64;       # nanoseconds from frame sent to frame arrived, median; one host only
  hopP99Ns @8 :UInt64;       # the same, 99th percentile
  fencedFrames @9 :UInt64;   # dropped for an old view or incarnation
  garbageFrames @10 :UInt64; # dropped because they made no sense
  weightBytes @11 :UInt64;   # memory of the weights
  kvBytes @12 :UInt64;       # memory of the KV blocks
  residentBytes @13 :UInt64; # resident memory of the process
  stepP50Ns @14 :UInt64;     # nanoseconds that a micro-batch took to compute, median
  stepP99Ns @15 :UInt64;     # the same, 99th percentile
  journalBytes @16 :UInt64;  # of output kept for stages that may have to catch up
  standby @17 :UInt64;       # incarnation of the standby that follows; 0: there is none
  standbyBehind @18 :UInt64; # rows of the KV cache that the standby has not acknowledged
}

struct InjectFault {
  # For tests of recovery; obeyed only by daemons that were started to allow it.
  deployment @0 :Text;  # 1 to 256 bytes
  stage @1 :UInt32;     # below 1024
  fault @2 :Text;       # "throw", "kill" or "hang"; at most 64 bytes
}

# What clients say to a cluster: Cap'n Proto RPC, level 1, over TCP.
#
# The bootstrap capability is a Door. Logging in yields a Session, and everything else is a method of it, so
# whoever holds no Session can do nothing. Until TLS exists daemons listen on loopback only, and a Door without
# a configured token accepts the empty one.
#
# Failures that a caller can act upon travel as `Failure` values in results, never as the text of an exception;
# an exception means that the connection is gone or that one side broke the protocol. A null `failure` pointer
# is success.
#
# How this file may change: fields and methods are added at the end, never renumbered or given another meaning.
# A change that old peers would misread raises `protocolVersion`; a server accepts a range of versions and
# answers the one it chose. Methods that stream use plain `-> ()` results: every RPC implementation knows them.

@0xc1a5e4f1d7b0936e;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema::client");

const protocolVersion :UInt32 = 1;

# ---- words -------------------------------------------------------------------------------------------------

enum FailureCode {
  # Named after what the caller can do about it.
  invalidArgument @0;    # the request is wrong: mend it
  invalidFile @1;        # a file is not what it says
  invalidFrame @2;       # bytes that make no sense
  notFound @3;           # no such thing: name another
  alreadyExists @4;      # someone was first
  conflict @5;           # the id was used for a different request
  fenced @6;             # an older view or incarnation
  unavailable @7;        # not now: try again later or elsewhere, under the same id
  resourceExhausted @8;  # a stated limit was reached
  deadlineExceeded @9;   # it took too long: the outcome is unknown
  cancelled @10;         # somebody asked for it to stop
  divergence @11;        # two executions of the same input differed
  io @12;                # the operating system refused
  internal @13;          # a bug on the other side
}

struct Failure {
  code @0 :FailureCode;
  message @1 :Text;  # for people: what was seen and what was allowed
}

# ---- entering ----------------------------------------------------------------------------------------------

interface Door {
  login @0 (token :Text, protocol :UInt32, client :Text)
      -> (failure :Failure, session :Session, protocol :UInt32, version :Text, node :Text);
  # token: empty, or what the operator configured. protocol: the newest version the client speaks.
  # client: name and version of the client program, for logs; at most 128 bytes are kept.
  # Until the answer has come, messages are limited to 64 KiB and there is little time: log in first, then call.
  # Answers the session and the protocol version to use (at most the client's), the daemon's version and node id.
}

interface Session {
  generate @0 (request :GenerateRequest, sink :TokenSink) -> (end :GenerateEnd);
  # Generates text. Returns when the request ended, after every push to the sink was answered. Dropping the
  # call drops the stream: the cluster stops working on the request unless someone else listens to it or the
  # client asks again, under the same id, within a grace period.

  cancel @1 (id :Text) -> (failure :Failure);
  # Ends a request for everyone who listens to it; their calls return with reason `cancelled`.

  status @2 () -> (failure :Failure, status :ClusterStatus);

  injectFault @3 (fault :Fault) -> (failure :Failure);
  # Breaks something on purpose. Refused unless the daemon was started with fault injection allowed.

  shutdown @4 (wholeCluster :Bool, drainMaxMs :UInt64) -> (failure :Failure);
  # Ends this daemon, or all daemons of the cluster. Running requests get drainMaxMs to finish.
  # Answers when the shutdown is accepted.

  ping @5 () -> ();
  # Does nothing; a client that waits for tokens tells a quiet server from a frozen one with it.

  drainNode @6 (node :Text, drained :Bool) -> (failure :Failure);
  # True: the node takes no new stages, and those it has move to other nodes while they serve. False: it takes
  # stages again; what moved away stays away. Answers when that is noted; `status` shows how far it is. The
  # head keeps it in memory: a head that starts anew has forgotten it. Again is harmless.

  moveStage @7 (model :Text, stage :UInt32, node :Text) -> (failure :Failure);
  # Moves one stage to that node: it is loaded there while it still serves where it is. Answers when the move
  # has begun; `StageStatus` shows where it goes, and why not if it is undone.

  setStandby @8 (model :Text, policy :StandbyPolicy) -> (failure :Failure);
  # From now on standbys follow the stages, or not. Answers when that is noted; `StageStatus` shows who follows.
  # The head keeps it in memory: a head that starts anew goes by its configuration. Again is harmless.
}

enum StandbyPolicy {
  none @0;
  kv @1;  # a standby of each stage, on another node, is sent the rows of its KV cache
  input @2;  # a standby of each stage, on another node, is sent its input, executes it, too, and compares
}

# ---- generating --------------------------------------------------------------------------------------------

struct ChatMessage {
  role @0 :Text;  # "system", "user", "assistant"
  content @1 :Text;
}

struct GenerateRequest {
  id @0 :Text;
  # Idempotency key: 1 to 128 printable ASCII characters without spaces; empty: the server makes one. The same
  # id with the same request joins what is running or finished, and never runs it twice.
  model @1 :Text;  # deployment name; empty: the only one there is
  prompt :union {
    none @2 :Void;                     # refused
    text @3 :Text;                     # raw completion
    messages @4 :List(ChatMessage);    # through the model's chat template
    tokens @5 :List(UInt32);           # already tokenised
  }
  maxTokens @6 :UInt32;      # at least 1
  temperature @7 :Float32;   # [0, 100]; 0 is greedy
  topP @8 :Float32 = 1;      # (0, 1]
  seed @9 :UInt64;
  ignoreEnd @10 :Bool;       # go on past the model's end-of-text token
  topK @12 :UInt32;          # only so many of the likeliest tokens; 0: all
  minP @13 :Float32;         # [0, 1]; only tokens at least so likely, the likeliest being 1
  after @11 :UInt64;
  # Cursor: only pieces with index >= after are sent. A client that lost its connection repeats its request
  # under the same id with the index of the first piece it lacks, and gets exactly the rest.
}

struct Piece {
  index @0 :UInt64;         # position among the generated tokens; grows by one
  token @1 :UInt32;
  text @2 :Text;            # complete UTF-8; may be empty in the middle of a character
  logitsDigest @3 :UInt64;  # of the logits the token was drawn from
}

interface TokenSink {
  push @0 (pieces :List(Piece)) -> ();
  # Everything that has come since the last push, in order. The next push waits for the answer to this one:
  # answering late slows the stream down, it loses nothing.
}

enum FinishReason {
  stop @0;       # the model said its end-of-text token
  length @1;     # maxTokens, or the context's end
  cancelled @2;  # somebody asked for it
  failed @3;     # `failure` says why
}

struct GenerateEnd {
  id @0 :Text;  # of the request, also where the server made it
  reason @1 :FinishReason;
  promptTokens @2 :UInt32;
  generatedTokens @3 :UInt32;  # of the whole request, also those before the cursor
  text @4 :Text;               # what the detokeniser still held at the end
  failure @5 :Failure;         # set exactly if the reason is `failed`
}

# ---- looking -----------------------------------------------------------------------------------------------

struct ClusterStatus {
  clusterId @0 :Text;
  version @1 :Text;     # of the answering daemon
  answeredBy @2 :Text;  # its node id
  faultsSurvived @3 :UInt64;
  nodes @4 :List(NodeStatus);
  deployments @5 :List(DeploymentStatus);
  events @6 :List(ClusterEvent);  # the latest ones, oldest first
}

enum NodeState {
  alive @0;
  suspect @1;
  dead @2;
}

struct NodeStatus {
  id @0 :Text;
  role @1 :Text;
  state @2 :NodeState;
  address @3 :Text;
  incarnation @4 :UInt64;
  process @5 :UInt64;
  memoryTotalBytes @6 :UInt64;
  memoryFreeBytes @7 :UInt64;
  cores @8 :UInt32;
  uptimeMs @9 :UInt64;
  restarts @10 :UInt32;
  draining @11 :Bool;  # takes no new stages; those it has are moving away
}

enum DeploymentState {
  loading @0;
  serving @1;
  recovering @2;
  failed @3;
  stopped @4;
}

struct DeploymentStatus {
  name @0 :Text;
  model @1 :Text;
  modelId @2 :Text;
  state @3 :DeploymentState;
  detail @4 :Text;
  view @5 :UInt64;
  stages @6 :List(StageStatus);
  batcher @7 :BatcherStatus;
  standbyPolicy @8 :StandbyPolicy;
  unprotected @9 :UInt32;  # stages that shall have a standby and have none that could take their seat
}

enum StandbyState {
  none @0;
  loading @1;  # it is being started; it cannot take the seat yet
  filling @2;  # it could take the seat, but lacks more than a few rows
  ready @3;    # it could take the seat and lacks a few rows at most
}

struct StageStatus {
  index @0 :UInt32;
  node @1 :Text;
  layerFirst @2 :UInt32;
  layerLast @3 :UInt32;   # one past the last layer
  process @4 :UInt64;     # 0: runs inside its daemon
  incarnation @5 :UInt64;
  steps @6 :UInt64;
  tokens @7 :UInt64;
  tokensPerSecond @8 :Float64;
  busyFraction @9 :Float64;
  hopP50Ms @10 :Float64;
  hopP99Ms @11 :Float64;
  stepP50Ms @12 :Float64;
  stepP99Ms @13 :Float64;
  weightBytes @14 :UInt64;
  kvBytes @15 :UInt64;
  residentBytes @16 :UInt64;
  fencedFrames @17 :UInt64;
  movingTo @18 :Text;     # where it is being placed, if that is another node; else empty
  moveTrouble @19 :Text;  # why a planned move did not take it away; else empty
  standby @20 :Text;          # node of the standby that follows it and could take its seat; empty: none
  standbyBehind @21 :UInt64;  # rows of KV that the standby has not acknowledged
  standbyState @22 :StandbyState;
  standbyTrouble @23 :Text;  # why it has no standby and none is being started; else empty
}

struct BatcherStatus {
  node @0 :Text;
  requestsQueued @1 :UInt32;
  requestsRunning @2 :UInt32;
  microBatchesInFlight @3 :UInt32;
  kvBlocksUsed @4 :UInt32;
  kvBlocksTotal @5 :UInt32;
  tokensGenerated @6 :UInt64;
  tokensReplayed @7 :UInt64;
  tokensPerSecond @8 :Float64;
}

struct ClusterEvent {
  unixMs @0 :Int64;
  text @1 :Text;
}

# ---- breaking ----------------------------------------------------------------------------------------------

enum FaultKind {
  throw @0 $Cxx.name("throwing");  # the stage actor throws while handling its next message
  kill @1;                         # the stage's process ends as by kill -9
  hang @2;                         # the stage stops making progress, but its beats go on
}

struct Fault {
  model @0 :Text;
  stage @1 :UInt32;
  kind @2 :FaultKind;
  text @3 :Text;
  # For example "kill@computed+3" (actors/dataplane/fault_points.h), at most 64 bytes; empty: as kind says.
}

# What stands in front of a tensor on the wire: FrameHeader of transport/frame.h. Encoded as one
# flat segment; receivers refuse any other form. The payload follows raw, outside Cap'n Proto.
#
# How this schema may change: add fields with new numbers at the end, give them a default that means
# "as before", never renumber, never change a type. A field that is no longer used keeps its number
# and is named obsolete….
@0xd3a1c5f0b7e94261;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

enum FrameKind {
  tokens @0;       # batcher to stage 0: token ids; no payload
  activations @1;  # stage to stage: payload [rows][hidden] float32, segment after segment
  sampled @2;      # last stage to batcher: sampled tokens; no payload
  refused @3;      # any stage to batcher: the micro-batch could not run; no payload
  replay @4;       # batcher to a stage: send these rows from your journal to the next stage
  kvRows @5;       # stage to its standby: payload [rows][columns of 4 bytes], rows of its KV cache
  kvStored @6;     # standby to its stage: segments' positions are the lengths it holds now
  inputRows @7;    # stage to its standby: input it executed, and what came out (`outcomes`)
  checked @8;      # standby to batcher: it executed these rows, too, and the same came out; or `disputed`
  watermarks @9;   # stage to the one before it: standbys from it on hold positions below the segments'
}

struct FrameHeader {
  kind @0 :FrameKind;
  view @1 :UInt64;          # number of the view, 1 and up; frames of another view are dropped
  sender @2 :UInt64;        # incarnation (random) of the stage or batcher that sends
  receiver @3 :UInt64;      # incarnation that is meant; any other drops the frame
  edgeSequence @4 :UInt64;  # 1, 2, … per (view, sender, receiver): repeats and gaps show
  microBatch @5 :UInt64;    # grows by one with each micro-batch of a batcher
  hidden @6 :UInt32;        # columns of the payload; 0 without one
  segments @7 :List(Segment);   # at most 4096, in row order of the payload
  released @8 :List(UInt64);    # sequences whose KV blocks may be dropped, at most 4096
  payloadBytes @9 :UInt64;      # of the raw payload, at most 2^28
  payloadDigest @10 :UInt64;    # XXH3-64 of the raw payload, seeded with the cluster's key
  refusal @11 :Text;            # refused: what was wrong, at most 4096 bytes of UTF-8; else empty
  refusalCode @12 :UInt8;       # refused: ErrorCode of base/result.h, 0 … 13
  refusingStage @13 :UInt32;    # refused: index of the stage, 0 and up
  sentUnixUs @14 :Int64;        # sender's wall clock, microseconds since 1970; for figures only
  exitStage @15 :UInt32 = 0xffffffff;  # the micro-batch ends at this stage, which answers `sampled`
}

# The rows of one sequence in a micro-batch.
struct Segment {
  sequence @0 :UInt64;         # request inside one batcher, never reused by it
  position @1 :UInt32;         # of the first row in the sequence; sampled: of the sampled token
  rows @2 :UInt32;             # at most 65536
  blocks @3 :List(UInt32);     # KV block table of the sequence, at most 16384 entries
  tokens @4 :List(UInt32);     # tokens: one per row; sampled: the sampled one or none; else empty
  sample @5 :Bool;             # the last row's logits choose the next token; see FrameSegment
  temperature @6 :Float32;     # [0, 100]; 0 is greedy
  topP @7 :Float32 = 1.0;      # (0, 1]
  seed @8 :UInt64;             # of the draws
  logitsDigest @9 :UInt64;     # sampled: digest of the logits row, to compare executions; else 0
  outcomes @10 :List(UInt64);  # inputRows, checked: one per row, digest of what came out (0: nothing); else empty
  disputed @11 :Bool;          # kvStored, checked: the row at position + rows came out differently
  seatOutcome @12 :UInt64;     # checked, if disputed: what came out of that row at the stage …
  standbyOutcome @13 :UInt64;  # … and at the standby
  topK @14 :UInt32;            # only so many of the likeliest tokens; 0: all
  minP @15 :Float32;           # [0, 1]
}

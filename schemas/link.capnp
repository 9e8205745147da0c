# What a peer link says besides control messages: who is there, that it lives, and why it goes. Each
# is the payload of one packet (transport/peer/packet.h). Changes follow the rules at the head of
# control.capnp.
@0xe4a07c53b1d6928f;

using Cxx = import "/capnp/c++.capnp";
using Common = import "/schemas/common.capnp";
$Cxx.namespace("troupe::wire::link");

struct Hello {
  # The first packet of each side on a message stream; at most 64 KiB.
  protocolMin @0 :UInt32;  # oldest protocol this side speaks
  protocolMax @1 :UInt32;  # newest; the link uses the highest that both speak
  clusterId @2 :Text;      # equal on both sides; 1 to 128 bytes
  node @3 :Text;           # node id: 1 to 64 of A-Z a-z 0-9 . _ / -
  incarnation @4 :UInt64;  # random, of this life of the process; never 0
  listen @5 :Text;         # where this node listens, for people; at most 256 bytes
  token @6 :UInt64;
  # Random, never 0. The side that dialled names the other side's token when it opens the beat
  # stream that belongs to this message stream.
}

struct BeatHello {
  # The first and only packet but beats on a beat stream, from the side that dialled.
  token @0 :UInt64;  # from the hello of the side that was dialled
}

struct Beat {
  number @0 :UInt64;
  # Grows by one with each beat of this incarnation; a beat that is not newer is dropped.
  progress @1 :List(Progress);
  # Of the compute threads of this process; at most 256.
  heard @2 :UInt64;
  # The newest beat that was heard on this link from the other side; 0: none yet. A side that beats but does not hear is
  # as good as silent.
}

struct Progress {
  stage @0 :UInt32;     # stage number
  started @1 :UInt64;   # micro-batches started so far
  finished @2 :UInt64;  # micro-batches finished so far; a thread with started > finished is busy
}

struct Goodbye {
  # The last packet before a side closes.
  why @0 :Common.Failure;
}

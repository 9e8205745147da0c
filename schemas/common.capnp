# Words that several schemas share.
#
# How a schema may change, here and in every file beside it: add fields with new numbers at the end,
# give them a default that means "as before", never renumber, never change a type or a unit.
@0xc41fe02a7b9d6853;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# Layers [first, last) of a model.
struct LayerRange {
  first @0 :UInt32;  # 0 and up
  last @1 :UInt32;   # first and up; equal means none
}

# Failure as a value: Error of base/result.h.
struct Failure {
  code @0 :UInt8;    # ErrorCode, 0 … 13; a number the reader does not know counts as `internal`
  message @1 :Text;  # what was seen and what was allowed, at most 4096 bytes of UTF-8
}

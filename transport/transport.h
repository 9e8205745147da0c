// Moving tensors between processes. One Transport per process; stages and batchers are addressed
// inside frames by incarnation.
//
// - Order: frames of one connection arrive in the order sent, each at most once, or the connection
//   is lost.
// - Ownership: send() takes the frame; its payload is only read, until the transport dropped its
//   reference.
// - Delivery: accepted is not delivered. What must arrive is answered by the receiver's own
//   message.
// - Liveness: a frozen or cut-off peer is NOT reported here (UCX over tcp never notices): beats on
//   the peer link do.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "transport/frame.h"

namespace troupe {

using ConnectionId = Id64<struct ConnectionTag>;  // ours, of one outgoing connection; never reused

enum class SendOutcome : uint8_t {
  kAccepted,  // taken; goes out in order
  kNoCredit,  // the receiver holds kWindow unreleased frames of ours: keep it, on_credit() says
              // when to go on
  kClosed,    // lost, closed or unknown: on_lost() was or will be called if it was ever open
};

// How many frames of one connection a receiver may hold unreleased. A received frame is released
// when the last copy of its payload buffer (Frame::lease) is gone.
inline constexpr uint32_t kWindow = 256;

// Called on the transport's own thread: must not block, throw, destroy the transport, or call back
// into close() of the same transport synchronously with locks held. In practice each posts a
// message to an actor. A frame that is not wanted is dropped outside any lock its lease could need.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  // A frame whose framing and digest were checked. Fences (view, incarnations) are the receiver's
  // to check.
  virtual void on_frame(Frame frame) = 0;
  virtual void on_lost(ConnectionId connection,
                       Error why) = 0;                  // once per connection, not after close()
  virtual void on_credit(ConnectionId connection) = 0;  // after kNoCredit
  // Bytes that made no sense arrived and were dropped. `what` is for the log.
  virtual void on_garbage(Error what) = 0;
};

struct TransportFigures {
  uint64_t frames_sent = 0, frames_received = 0, bytes_sent = 0, bytes_received = 0;
  uint64_t frames_refused = 0;  // garbage
};

class Transport {
 public:
  virtual ~Transport() = default;  // stops its thread; no event after it

  // What peers need to connect; opaque, travels over the peer link. At most kAddressMax bytes.
  virtual std::vector<std::byte> address() const = 0;
  // Opens an outgoing connection; never blocks. Failure to reach the peer arrives as on_lost.
  // Errors: kInvalidArgument (an address that is none).
  virtual Result<ConnectionId> connect(ByteSpan address) = 0;
  // Any thread. The frame is moved from only if the outcome is kAccepted.
  virtual SendOutcome send(ConnectionId connection, Frame& frame) = 0;
  // Any thread. Drops what is queued. Buffers in flight stay alive until the network let go of
  // them.
  virtual void close(ConnectionId connection) = 0;
  virtual TransportFigures figures() const = 0;
};

inline constexpr size_t kAddressMax = 4096;

}  // namespace troupe

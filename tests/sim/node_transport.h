// A node's transport: faulty loopback, with the witness at its sender and a gate at its receiver
// that keeps what arrives while the node is paused, as socket buffers do. The gate is also where
// bugs of a receiver are planted.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "actors/dataplane/frame_router.h"
#include "tests/sim/plant.h"
#include "tests/sim/witness.h"
#include "transport/faulty.h"
#include "transport/loopback.h"

namespace troupe::sim {

struct NodeTransportOptions {
  uint64_t seed = 0;
  FaultOdds odds;
  LoopbackHub* hub = nullptr;
  std::shared_ptr<FrameRouter> router;  // until it is detached
  std::shared_ptr<Witness> witness;
  Plant plant = Plant::kNone;
  // Runs it while the clock shows the node's time.
  std::function<void(const std::function<void()>&)> in_its_time;
  std::function<Duration()> wall_ahead;  // of the node's wall clock
};

class NodeTransport final : public Transport {
 public:
  explicit NodeTransport(const NodeTransportOptions& options);
  ~NodeTransport() override;
  FaultyTransport& faulty() { return *faulty_; }
  void pause(bool paused);
  // For bugs of fencing: the newest view there is.
  void pretend(const View& view);

  std::vector<std::byte> address() const override { return faulty_->address(); }
  Result<ConnectionId> connect(ByteSpan address) override { return faulty_->connect(address); }
  SendOutcome send(ConnectionId connection, Frame& frame) override;
  void close(ConnectionId connection) override { faulty_->close(connection); }
  TransportFigures figures() const override { return faulty_->figures(); }

 private:
  class Gate;
  std::shared_ptr<Witness> witness_;
  std::function<Duration()> wall_ahead_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<FaultyTransport> faulty_;  // before the gate
};

}  // namespace troupe::sim

#include "tests/sim/node_transport.h"

#include <cstring>
#include <functional>

namespace troupe::sim {

class NodeTransport::Gate final : public TransportEvents {
 public:
  Gate(std::shared_ptr<FrameRouter> router, Plant plant)
      : router_(std::move(router)), plant_(plant) {}

  void on_frame(Frame frame) override {
    if (paused_)
      waiting_.push_back(
          [this, frame = std::make_shared<Frame>(std::move(frame))] { let_in(std::move(*frame)); });
    else
      let_in(std::move(frame));
  }
  void on_lost(ConnectionId connection, Error why) override {
    enter([this, connection, why] { router_->on_lost(connection, why); });
  }
  void on_credit(ConnectionId connection) override {
    enter([this, connection] { router_->on_credit(connection); });
  }
  void on_garbage(Error what) override {
    enter([this, what] { router_->on_garbage(what); });
  }
  void pause(bool paused) {
    paused_ = paused;
    while (!paused_ && !waiting_.empty()) {
      const auto event = std::move(waiting_.front());
      waiting_.pop_front();
      event();
    }
  }
  void pretend(ViewNumber view) { newest_ = std::max(newest_, view); }

 private:
  void enter(std::function<void()> event) {
    if (paused_)
      waiting_.push_back(std::move(event));
    else
      event();
  }

  void let_in(Frame frame) {
    if (plant_ == Plant::kNoViewFence && frame.header.view < newest_) {
      frame.header.view = newest_;
      frame.header.edge_sequence += uint64_t{1} << 32;  // never a repeat
    }
    if (plant_ == Plant::kNoDigest && frame.payload.size() > 0 && ++frames_ % 16 == 0) {
      SharedBuffer damaged = SharedBuffer::allocate(frame.payload.size());
      std::memcpy(damaged.mutable_data(), frame.payload.data(), damaged.size());
      *damaged.mutable_data() ^= std::byte{1};
      frame.payload = std::move(damaged);
    }
    router_->on_frame(std::move(frame));
  }

  const std::shared_ptr<FrameRouter> router_;
  const Plant plant_;
  bool paused_ = false;
  std::deque<std::function<void()>> waiting_;
  ViewNumber newest_;
  uint64_t frames_ = 0;
};

NodeTransport::NodeTransport(const NodeTransportOptions& options)
    : witness_(options.witness),
      gate_(std::make_unique<Gate>(options.router, options.plant)),
      faulty_(std::make_unique<FaultyTransport>(
          *gate_, options.seed, options.odds,
          [&options](TransportEvents& events) { return options.hub->attach(events); })) {}

NodeTransport::~NodeTransport() {
  faulty_ = nullptr;
}

void NodeTransport::pause(bool paused) {
  gate_->pause(paused);
}

void NodeTransport::pretend(ViewNumber view) {
  gate_->pretend(view);
}

SendOutcome NodeTransport::send(ConnectionId connection, Frame& frame) {
  Frame copy;  // its header and payload, not its lease
  copy.header = frame.header;
  copy.payload = frame.payload;
  const SendOutcome outcome = faulty_->send(connection, frame);
  if (outcome == SendOutcome::kAccepted) witness_->sent(copy);
  return outcome;
}

}  // namespace troupe::sim

#include "tests/sim/node_transport.h"

#include <algorithm>
#include <cstring>

namespace troupe::sim {

class NodeTransport::Gate final : public TransportEvents {
 public:
  explicit Gate(const NodeTransportOptions& options)
      : router_(options.router), plant_(options.plant), in_its_time_(options.in_its_time) {}

  void on_frame(Frame frame) override {
    enter([this, frame = std::make_shared<Frame>(std::move(frame))] { let_in(std::move(*frame)); });
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
      in_its_time_(event);
    }
  }
  void pretend(const View& view) {
    if (newest_.number < view.number) newest_ = view;
  }

 private:
  void enter(std::function<void()> event) {
    if (paused_)
      waiting_.push_back(std::move(event));
    else
      in_its_time_(event);
  }

  // Who sends to this receiver in the newest view; nobody if it has no seat there.
  Incarnation sender_to(Incarnation receiver) const {
    const std::vector<Seat>& seats = newest_.seats;
    for (size_t stage = 0; stage < seats.size(); ++stage)
      if (seats[stage].incarnation == receiver)
        return stage == 0 ? newest_.batcher : seats[stage - 1].incarnation;
    return receiver == newest_.batcher ? seats.back().incarnation : Incarnation{};
  }
  bool is_seated(Incarnation life) const {
    return life == newest_.batcher ||
           std::any_of(newest_.seats.begin(), newest_.seats.end(),
                       [&](const Seat& seat) { return seat.incarnation == life; });
  }

  void let_in(Frame frame) {
    FrameHeader& header = frame.header;
    const bool is_old = header.view < newest_.number;
    const Incarnation successor = sender_to(header.receiver);
    // Only what is computed: a late answer is of a micro-batch that no batcher knows any more, and
    // its number would make the successor's own answers look like repeats.
    const bool of_zombie =
        is_old && header.kind == FrameKind::kActivations && successor && !is_seated(header.sender);
    if (plant_ == Plant::kZombie && of_zombie) header.sender = successor;
    if ((plant_ == Plant::kNoViewFence && is_old) || (plant_ == Plant::kZombie && of_zombie)) {
      header.view = newest_.number;
      header.edge_sequence += uint64_t{1} << 32;  // never a repeat
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
  const std::function<void(const std::function<void()>&)> in_its_time_;
  bool paused_ = false;
  std::deque<std::function<void()>> waiting_;
  View newest_;
  uint64_t frames_ = 0;
};

NodeTransport::NodeTransport(const NodeTransportOptions& options)
    : witness_(options.witness),
      wall_ahead_(options.wall_ahead),
      gate_(std::make_unique<Gate>(options)),
      faulty_(std::make_unique<FaultyTransport>(
          *gate_, options.seed, options.odds,
          [&options](TransportEvents& events) { return options.hub->attach(events); })) {}

NodeTransport::~NodeTransport() {
  faulty_ = nullptr;
}

void NodeTransport::pause(bool paused) {
  gate_->pause(paused);
}

void NodeTransport::pretend(const View& view) {
  gate_->pretend(view);
}

SendOutcome NodeTransport::send(ConnectionId connection, Frame& frame) {
  if (frame.header.sent_unix_us > 0)
    frame.header.sent_unix_us +=
        std::chrono::duration_cast<std::chrono::microseconds>(wall_ahead_()).count();
  Frame copy;  // its header and payload, not its lease
  copy.header = frame.header;
  copy.payload = frame.payload;
  const SendOutcome outcome = faulty_->send(connection, frame);
  if (outcome == SendOutcome::kAccepted) witness_->sent(copy);
  return outcome;
}

}  // namespace troupe::sim

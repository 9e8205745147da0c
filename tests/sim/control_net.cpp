#include "tests/sim/control_net.h"

#include <caf/send.hpp>

namespace troupe::sim {

class ControlNet::Wire final : public PeerWire {
 public:
  Wire(ControlNet& net, size_t end, uint64_t life) : net_(net), end_(end), life_(life) {}
  Result<void> send(LinkId link, ControlMessage message) override {
    return net_.send(link, end_, life_, std::move(message));
  }
  void close(LinkId link, std::string why) override { net_.close(link, end_, life_, why); }

 private:
  ControlNet& net_;
  const size_t end_;
  const uint64_t life_;
};

ControlNet::ControlNet(uint32_t nodes, uint64_t seed, Hooks hooks)
    : hooks_(std::move(hooks)), draw_(seed), beats_(nodes) {
  for (auto& direction : cut_) direction.resize(nodes);
}

std::shared_ptr<PeerWire> ControlNet::wire(uint32_t node, uint64_t life) {
  return std::make_shared<Wire>(*this, node == 0 ? 0 : 1, life);
}

void ControlNet::dial(uint32_t worker) {
  const NetNode dialler = hooks_.node(worker), head = hooks_.node(0);
  if (dialler.life == 0) return;
  for (const auto& [link, known] : links_)
    if (known.worker == worker && known.ends[1].life == dialler.life && known.ends[1].up) return;
  if (head.life == 0 || head.paused || dialler.paused || is_cut(worker))
    return hooks_.after(draw(20'000, 200'000), [this, worker, life = dialler.life] {
      if (hooks_.node(worker).life == life) dial(worker);
    });
  const LinkId link{++last_link_};
  Link& made = links_[link];
  made.worker = worker;
  made.ends[0] = {head.life, true};
  made.ends[1] = {dialler.life, true};
  made.last_due[0] = made.last_due[1] = hooks_.now() + 1ms;
  hooks_.after(1ms, [this, link] { raise(link); });
}

void ControlNet::raise(LinkId link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  for (size_t end = 0; end < 2; ++end) {
    const NetNode here = hooks_.node(node_of(found->second, end));
    const NetNode there = hooks_.node(node_of(found->second, 1 - end));
    if (!found->second.ends[end].up || here.life != found->second.ends[end].life) continue;
    PeerHello hello;
    hello.cluster_id = "sim";
    hello.node = there.id;
    hello.incarnation = Incarnation{found->second.ends[1 - end].life};
    caf::anon_send(here.peer, LinkUp{link, hello});
  }
}

Result<void> ControlNet::send(LinkId link, size_t from, uint64_t life, ControlMessage message) {
  const auto found = links_.find(link);
  if (found == links_.end() || !found->second.ends[from].up ||
      found->second.ends[from].life != life)
    return Error{ErrorCode::kUnavailable, "the link is down"};
  const size_t to = 1 - from;
  transmit(link, to, [this, link, to, message = std::move(message)] {
    const Link& known = links_.at(link);
    const NetNode receiver = hooks_.node(node_of(known, to));
    if (!known.ends[to].up || receiver.life != known.ends[to].life) return;
    hooks_.seen(message);
    caf::anon_send(receiver.peer, LinkSaid{link, message});
  });
  return {};
}

void ControlNet::transmit(LinkId link, size_t to, std::function<void()> arrive) {
  Link& known = links_.at(link);
  if (cut_[to][known.worker] || !known.held[to].empty()) {
    known.held[to].push_back(std::move(arrive));
    return;
  }
  Instant& last = known.last_due[to];
  last = std::max(last, hooks_.now() + draw(100, 2000));
  hooks_.after(last - hooks_.now(), [this, link, to, arrive = std::move(arrive)] {
    const auto found = links_.find(link);
    if (found == links_.end()) return;
    // What was under way when the cut came waits for it to end, in order.
    if (cut_[to][found->second.worker])
      found->second.held[to].push_back(arrive);
    else
      arrive();
  });
}

// One end of a link is down; a worker's end dials again.
void ControlNet::lower(LinkId link, size_t end, const Error& why) {
  Link& known = links_.at(link);
  if (!known.ends[end].up) return;
  known.ends[end].up = false;
  const uint32_t index = node_of(known, end);
  const NetNode node = hooks_.node(index);
  if (node.life == known.ends[end].life) {
    caf::anon_send(node.peer, LinkDown{link, why});
    if (end == 1)
      hooks_.after(draw(20'000, 150'000), [this, index, life = node.life] {
        if (hooks_.node(index).life == life) dial(index);
      });
  }
  if (!known.ends[1 - end].up) links_.erase(link);
}

void ControlNet::close(LinkId link, size_t from, uint64_t life, const std::string& why) {
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.ends[from].life != life) return;
  const size_t to = 1 - from;
  transmit(link, to, [this, link, to, why] {
    lower(link, to, Error{ErrorCode::kUnavailable, "the peer closed it: " + why});
  });
  lower(link, from, Error{ErrorCode::kCancelled, why});
}

void ControlNet::crashed(uint32_t node, uint64_t life) {
  const size_t end = node == 0 ? 0 : 1;
  std::vector<LinkId> touched;
  for (const auto& [link, known] : links_)
    if (node_of(known, end) == node && known.ends[end].up && known.ends[end].life == life)
      touched.push_back(link);
  for (const LinkId link : touched) {
    transmit(link, 1 - end, [this, link, end] {
      lower(link, 1 - end, Error{ErrorCode::kUnavailable, "the stream ended"});
    });
    lower(link, end, Error{});
  }
}

void ControlNet::cut(uint32_t worker, Direction direction, bool cut) {
  const auto which = static_cast<size_t>(direction);
  cut_[which][worker] = cut;
  if (cut) return;
  for (auto& [link, known] : links_) {
    if (known.worker != worker) continue;
    auto held = std::exchange(known.held[which], {});
    for (auto& arrive : held) transmit(link, which, std::move(arrive));
  }
}

void ControlNet::beat() {
  for (const auto& [link, known] : links_)
    for (size_t to = 0; to < 2; ++to) {
      const uint32_t from_index = node_of(known, 1 - to);
      const NetNode from = hooks_.node(from_index), receiver = hooks_.node(node_of(known, to));
      if (cut_[to][known.worker] || !known.ends[0].up || !known.ends[1].up || from.paused ||
          receiver.paused || from.life != known.ends[1 - to].life ||
          receiver.life != known.ends[to].life)
        continue;
      Beat beat;
      beat.number = ++beats_[from_index];
      beat.progress = hooks_.progress(from_index);
      caf::anon_send(receiver.health, BeatHeard{link, beat, hooks_.now() + receiver.ahead});
    }
}

}  // namespace troupe::sim

// Peer links between a head and its workers, as the peer actors see them (PeerWire, LinkUp,
// LinkSaid, LinkDown) and the health monitors (BeatHeard). Messages of one direction keep their
// order and take a while; a cut direction holds them, as TCP does, and loses beats. A link has two
// ends that go down on their own: the other end hears of it by a message, which a cut holds, too.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "actors/peer.h"

namespace troupe::sim {

enum class Direction : uint8_t { kToHead = 0, kToWorker = 1 };

// What the network knows of the nodes; the head is node 0.
struct NetNode {
  NodeId id;
  uint64_t life = 0;  // 0: down
  bool paused = false;
  PeerActor peer;
  HealthMonitor health;
  Duration ahead{};  // of its clock
};

class ControlNet {
 public:
  struct Hooks {
    std::function<Instant()> now;
    std::function<void(Duration, std::function<void()>)> after;
    std::function<NetNode(uint32_t)> node;
    std::function<std::vector<Progress>(uint32_t)> progress;
    std::function<void(const ControlMessage&)> seen;  // each that arrives
  };
  ControlNet(uint32_t nodes, uint64_t seed, Hooks hooks);

  std::shared_ptr<PeerWire> wire(uint32_t node, uint64_t life);
  // The worker's life dials its head, again and again until it has a link.
  void dial(uint32_t worker);
  void crashed(uint32_t node, uint64_t life);
  void cut(uint32_t worker, Direction direction, bool cut);
  // One beat of everybody.
  void beat();

 private:
  class Wire;
  struct End {
    uint64_t life = 0;
    bool up = false;
  };
  struct Link {
    uint32_t worker = 0;
    End ends[2];  // of the head, of the worker: [direction] is its receiver
    Instant last_due[2];
    std::deque<std::function<void()>> held[2];
  };

  uint32_t node_of(const Link& link, size_t end) const { return end == 0 ? 0 : link.worker; }
  bool is_cut(uint32_t worker) const { return cut_[0][worker] || cut_[1][worker]; }
  Result<void> send(LinkId link, size_t from, uint64_t life, ControlMessage message);
  void close(LinkId link, size_t from, uint64_t life, const std::string& why);
  void transmit(LinkId link, size_t to, std::function<void()> arrive);
  void lower(LinkId link, size_t end, const Error& why);
  void raise(LinkId link);
  Duration draw(uint64_t least_us, uint64_t span_us) {
    return std::chrono::microseconds(least_us + draw_() % span_us);
  }

  const Hooks hooks_;
  std::mt19937_64 draw_;
  std::map<LinkId, Link> links_;
  std::vector<bool> cut_[2];  // [direction][worker]
  std::vector<uint64_t> beats_;
  uint64_t last_link_ = 0;
};

}  // namespace troupe::sim

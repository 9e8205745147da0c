// A network inside the process: transports attached to one hub reach each other with the contract
// of transport.h (order, credits by lease, on_lost when the peer is destroyed) and without copying
// payloads. For `troupe run`, tests and simulation.
//
// One queue orders everything: pumped by hand it makes tests deterministic (same calls, same
// events, same order); with a thread it is a transport like any other.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/transport.h"

namespace troupe {

enum class LoopbackPump : uint8_t {
  kByHand,  // nothing is delivered until pump() is called; no thread
  kThread,  // the hub's thread delivers
};

class LoopbackHub {
 public:
  explicit LoopbackHub(LoopbackPump pump);
  // Attached transports may outlive the hub; nothing is delivered to them any more.
  ~LoopbackHub();
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

  // `events` must live until the transport is destroyed. Destroying a transport waits for an event
  // that is being delivered to it, unless that event's handler is what destroys it.
  std::unique_ptr<Transport> attach(TransportEvents& events);

  // Delivers up to `events_max` events in order and returns how many were; events caused by
  // handlers count. Only with kByHand, from one thread at a time.
  size_t pump(size_t events_max = SIZE_MAX);

 private:
  class State;
  class Attached;
  std::shared_ptr<State> state_;
};

}  // namespace troupe

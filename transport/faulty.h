// A transport that misbehaves on purpose: wraps any other and, from a seed, loses, delays, repeats
// and reorders what is sent, damages what is received, and cuts a direction on command. So the
// layers above are tested against what networks and bugs below them can do, also where the contract
// of transport.h is broken (loss, repetition and disorder within a connection: the edge sequence
// and the position-addressed KV must stand that).
//
// Nothing here reads a clock: held frames leave when pump(now) says so. With an inner transport
// that is pumped by hand, a run is a function of its seed and its calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "transport/transport.h"

namespace troupe {

// Chances in [0, 1], drawn anew for each frame.
struct FaultOdds {
  double lose = 0;    // sent, never arrives
  double repeat = 0;  // sent twice
  double corrupt =
      0;             // of received frames: a bit of the encoded frame flips; it becomes on_garbage
  double delay = 0;  // held for up to delay_max, later frames of the connection behind it…
  double reorder = 0;  // …or not behind it: held alone
  Duration delay_max = 10ms;
};

class FaultyTransport final : public Transport {
 public:
  // Wraps the transport that `make_inner` makes for the events it is given. `events` must outlive
  // this.
  template <class MakeInner>
  FaultyTransport(TransportEvents& events, uint64_t seed, FaultOdds odds, MakeInner&& make_inner)
      : FaultyTransport(events, seed, odds) {
    start(make_inner(inner_events()));
  }
  ~FaultyTransport() override;

  std::vector<std::byte> address() const override;
  Result<ConnectionId> connect(ByteSpan address) override;
  SendOutcome send(ConnectionId connection, Frame& frame) override;
  void close(ConnectionId connection) override;
  TransportFigures figures() const override;

  // Sends what is due. Call it from one thread; time never goes back.
  void pump(Instant now);
  // When the next held frame is due; nothing if none is held.
  std::optional<Instant> next_due() const;

  void set_odds(FaultOdds odds);
  // A cut swallows frames without a word, as a network does; healing lets later ones through.
  void cut_outgoing(bool cut);
  void cut_incoming(bool cut);

 private:
  class State;
  FaultyTransport(TransportEvents& events, uint64_t seed, FaultOdds odds);
  TransportEvents& inner_events();
  void start(std::unique_ptr<Transport> inner);

  std::unique_ptr<State> state_;
};

}  // namespace troupe

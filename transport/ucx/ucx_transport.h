// Transport over UCX: tcp within one trust domain (this host, or an interface the operator declared
// trusted).
//
// One progress thread owns UCX's worker. Other threads put sends into its mailbox; events come from
// it. It works in bounded rounds, yields for 50 µs when idle and then sleeps, so that an idle
// transport costs no CPU and a busy one does not hold the core its peer needs.
//
// A connection is one UCX endpoint there and, after its hello, one back for credits. Frames are
// numbered; those that arrive early (small ones overtake a rendezvous) wait for their turn.
// Whatever makes no sense ends the connection it came by and is reported by on_garbage.
//
// Threats: UCX's own port trusts every byte (see docs/SECURITY.md); what is checked here is what
// reaches us as messages.
#pragma once

#include <memory>

#include "base/time.h"
#include "transport/transport.h"
#include "transport/ucx/environment.h"

namespace troupe {

struct UcxOptions {
  UcxNetwork network;
  uint64_t key = 0;               // of the digests; equal on all nodes of a cluster
  Duration connect_timeout = 5s;  // until the peer welcomed us, or on_lost
  // How many released receive buffers are kept for the next frames.
  size_t pool_bytes_max = size_t{256} << 20;
};

// Errors: kUnavailable (the environment lacks a setting, no such interface, no free port).
Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options,
                                                      TransportEvents& events);

}  // namespace troupe

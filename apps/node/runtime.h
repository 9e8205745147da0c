// A Troupe process, put together: transport, actors, peer links, client RPC. The same parts in the
// same order for a head, a worker, a stage process and `troupe run`; only what a role does not need
// is left out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/rpc/requests.h"
#include "apps/node/config.h"
#include "base/result.h"
#include "transport/peer/peer_links.h"
#include "transport/ucx/environment.h"

namespace troupe {

// What a stage process was given by its daemon.
struct StageProcess {
  NodeId id;            // "node-2/stage-1"
  LinkSockets sockets;  // to the daemon
  int memory = -1;      // for its KV cache; it outlives this process
};

struct RuntimeOptions {
  NodeConfig config;
  std::optional<StageProcess> stage;  // this is a stage process
  bool listens = true;                // false: `troupe run`, nothing listens and nothing is dialled
  std::string program;                // of stage processes: this program's own path
  std::vector<std::string>
      stage_arguments;  // that a stage process needs to read the same configuration
};

// The network UCX may use, as configured. main() puts its settings into the environment before any
// thread starts.
UcxNetwork ucx_network(const TransportConfig& transport);

enum class EndReason : uint8_t {
  kStopped,  // asked to
  kEvicted,  // the head declared this life dead: come back as a new one
  kFailed,   // an actor that everything needs died: come back
};

class NodeRuntime {
 public:
  // `ended` is called from any thread, perhaps more than once, when the process should end for a
  // reason of its own.
  using Ended = std::function<void(EndReason, std::string why)>;

  // Errors say which part could not start and why (port in use, ledger unreadable, no such
  // interface, …).
  static Result<std::unique_ptr<NodeRuntime>> start(RuntimeOptions options, Ended ended);
  ~NodeRuntime();
  NodeRuntime(const NodeRuntime&) = delete;
  NodeRuntime& operator=(const NodeRuntime&) = delete;

  // Ends in order: clients first, then stages, then everything. Bounded: under 5 s.
  void stop();

  // The head's seam to clients; null elsewhere. Valid until stop().
  ClusterRequests* requests();
  std::string listen_address() const;  // of peer links; empty if none
  std::string rpc_address() const;     // empty if none

 private:
  struct Parts;
  explicit NodeRuntime(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe

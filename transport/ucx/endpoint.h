// One UCX endpoint: a one-way road to a peer's worker. It ends only by force (a flushing close to a
// frozen peer never ends), and its buffers are in quarantine until UCX called back for every
// operation: each operation owns what it sends and keeps its endpoint alive.
//
// UCX's callbacks only note what happened; the progress loop looks and acts. All on the progress
// thread.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/ucx/wire.h"
#include "transport/ucx/worker.h"

namespace troupe::ucx {

// What is sent: the envelope, then up to two pieces of data.
struct Message {
  Envelope envelope;
  SharedBuffer header;   // envelope.header_bytes, with room up to payload_offset()
  SharedBuffer payload;  // envelope.payload_bytes
};

// Shared by the endpoints of one worker.
struct EndpointWatch {
  uint64_t operations = 0;  // that UCX has not called back for, of all endpoints
  bool attention = false;   // an endpoint failed, or an operation of one ended: look
};

class Endpoint : public std::enable_shared_from_this<Endpoint> {
 public:
  // Never blocks (UCX_TCP_CONN_NB). Errors: kUnavailable.
  static Result<std::shared_ptr<Endpoint>> create(const Worker& worker, ByteSpan address,
                                                  EndpointWatch& watch);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // A failure, also a later one, shows in failure().
  void send(Message message, uint64_t key);

  // Set once UCX reported that the peer cannot be reached any more.
  const std::optional<Error>& failure() const { return failure_; }
  uint64_t operations() const { return operations_; }
  uint64_t bytes_in_flight() const { return bytes_in_flight_; }

  // Starts the forced close; operations end with errors that nobody needs to hear of.
  void close();
  // True when UCX is done with it: the object may go.
  bool closed();

 private:
  struct Operation;
  Endpoint(ucp_worker_h worker, EndpointWatch& watch) : worker_(worker), watch_(watch) {}
  void finish(Operation* operation, ucs_status_t status);
  void fail(const char* doing, ucs_status_t status);

  ucp_worker_h worker_;
  EndpointWatch& watch_;
  ucp_ep_h handle_ = nullptr;
  void* close_request_ = nullptr;
  bool closing_ = false;
  std::optional<Error> failure_;
  uint64_t operations_ = 0, bytes_in_flight_ = 0;
};

}  // namespace troupe::ucx

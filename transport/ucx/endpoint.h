// One UCX endpoint: a one-way road to a peer's worker. It ends only by force (a flushing close to a
// frozen peer never ends), and its buffers are in quarantine until UCX called back for every
// operation: each operation owns what it sends and keeps its endpoint alive.
//
// UCX's callbacks only note what happened; the progress loop looks and acts. All on the progress
// thread.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
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
  uint64_t waiting = 0;     // control messages that UCX had no room for yet: retry_control()
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

  // A frame. A failure, also a later one, shows in failure(). Only once the peer is known to have
  // connected back: the first such message makes UCX 1.13 exchange endpoint ids, and a peer that
  // dies while an answer in that exchange waits for a connection aborts *our* process (an assertion
  // that Debian's build keeps; about one kill in 150 that falls into the first milliseconds).
  void send(Message message, uint64_t key);
  // Hello, welcome, credit, …: a short message that goes out at once or waits here, outside UCX,
  // and so needs no such exchange.
  void send_control(const Message& message, uint64_t key);
  void retry_control();

  // Set once UCX reported that the peer cannot be reached any more.
  const std::optional<Error>& failure() const { return failure_; }
  // Nothing is on its way out.
  bool idle() const { return operations_ == 0 && control_.empty(); }
  uint64_t bytes_in_flight() const { return bytes_in_flight_; }

  // Starts the forced close; operations end with errors that nobody needs to hear of.
  void close();
  // True when UCX is done with it: the object may go.
  bool closed();

 private:
  struct Operation;
  struct Control {
    EnvelopeBytes envelope;
    SharedBuffer data;
  };
  Endpoint(ucp_worker_h worker, EndpointWatch& watch) : worker_(worker), watch_(watch) {}
  void finish(Operation* operation, ucs_status_t status);
  void fail(const char* doing, ucs_status_t status);
  void drop_control();

  ucp_worker_h worker_;
  EndpointWatch& watch_;
  ucp_ep_h handle_ = nullptr;
  void* close_request_ = nullptr;
  bool closing_ = false;
  std::optional<Error> failure_;
  std::deque<Control> control_;  // in order
  uint64_t operations_ = 0, bytes_in_flight_ = 0;
};

}  // namespace troupe::ucx

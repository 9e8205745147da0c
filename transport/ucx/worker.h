// UCX's worker: the queues of one thread. Only the thread that created it may call it. Sleeping is
// bounded by a timeout and ended by UCX's event descriptor or by the mailbox's.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "transport/ucx/context.h"

namespace troupe::ucx {

class Worker {
 public:
  // `on_message` gets every active message of ours; it lives as long as the worker.
  static Result<std::unique_ptr<Worker>> create(const Context& context,
                                                ucp_am_recv_callback_t on_message, void* argument);
  ~Worker() { ucp_worker_destroy(handle_); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return handle_; }
  Result<std::vector<std::byte>> address() const;
  // At most `steps_max` steps, so that a fast peer does not starve the rest; true if anything
  // happened.
  bool progress(unsigned steps_max);
  // Sleeps until UCX, `wake_descriptor` or the timeout (negative: none) has something; at once if
  // UCX is busy.
  void wait(int wake_descriptor, Duration timeout);

  // The id of our active messages.
  static constexpr unsigned kMessageId = 1;

 private:
  Worker(ucp_worker_h handle, int descriptor) : handle_(handle), descriptor_(descriptor) {}
  ucp_worker_h handle_;
  int descriptor_;
};

}  // namespace troupe::ucx

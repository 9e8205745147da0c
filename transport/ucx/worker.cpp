#include "transport/ucx/worker.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace troupe::ucx {

Result<std::unique_ptr<Worker>> Worker::create(const Context& context,
                                               ucp_am_recv_callback_t on_message, void* argument) {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h handle = nullptr;
  ucs_status_t status = ucp_worker_create(context.handle(), &parameters, &handle);
  if (status != UCS_OK)
    return ucx_error(ErrorCode::kUnavailable,
                     "creating UCX's worker (is there such an interface, a free port?)", status);
  std::unique_ptr<Worker> worker(new Worker(handle, -1));
  status = ucp_worker_get_efd(handle, &worker->descriptor_);
  if (status != UCS_OK)
    return ucx_error(ErrorCode::kUnavailable, "getting UCX's event descriptor", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kMessageId;
  handler.cb = on_message;
  handler.arg = argument;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  status = ucp_worker_set_am_recv_handler(handle, &handler);
  if (status != UCS_OK)
    return ucx_error(ErrorCode::kUnavailable, "setting UCX's message handler", status);
  return worker;
}

Result<std::vector<std::byte>> Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t length = 0;
  const ucs_status_t status = ucp_worker_get_address(handle_, &address, &length);
  if (status != UCS_OK)
    return ucx_error(ErrorCode::kUnavailable, "getting UCX's worker address", status);
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + length);
  ucp_worker_release_address(handle_, address);
  return copy;
}

bool Worker::progress(unsigned steps_max) {
  unsigned steps = 0;
  while (steps < steps_max && ucp_worker_progress(handle_) != 0) ++steps;
  return steps > 0;
}

void Worker::wait(int wake_descriptor, Duration timeout) {
  if (ucp_worker_arm(handle_) != UCS_OK) return;  // events are waiting
  pollfd descriptors[2] = {{descriptor_, POLLIN, 0}, {wake_descriptor, POLLIN, 0}};
  // Rounded up: waking early would only spin.
  const auto milliseconds =
      std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(timeout, 1h)).count();
  poll(descriptors, 2, timeout < Duration::zero() ? -1 : static_cast<int>(milliseconds));
}

}  // namespace troupe::ucx

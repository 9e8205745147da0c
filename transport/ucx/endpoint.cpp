#include "transport/ucx/endpoint.h"

#include <cstring>

#include "base/log.h"

namespace troupe::ucx {

// UCX 1.13 reads header and pieces until it calls back: they live here.
struct Endpoint::Operation {
  std::shared_ptr<Endpoint> endpoint;
  EnvelopeBytes envelope;
  SharedBuffer header, payload;
  ucp_dt_iov_t pieces[2];
  size_t bytes = 0;
};

Result<std::shared_ptr<Endpoint>> Endpoint::create(const Worker& worker, ByteSpan address,
                                                   EndpointWatch& watch) {
  std::shared_ptr<Endpoint> endpoint(new Endpoint(worker.handle(), watch));
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                          UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.arg = endpoint.get();
  parameters.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t status) {
    static_cast<Endpoint*>(argument)->fail("the peer is gone", status);
  };
  const ucs_status_t status = ucp_ep_create(worker.handle(), &parameters, &endpoint->handle_);
  if (status != UCS_OK) {
    endpoint->handle_ = nullptr;
    return ucx_error(ErrorCode::kUnavailable, "connecting", status);
  }
  return endpoint;
}

Endpoint::~Endpoint() {
  TROUPE_CHECK(handle_ == nullptr, "an endpoint is closed before it goes");
}

void Endpoint::fail(const char* doing, ucs_status_t status) {
  watch_.attention = true;
  // UCX's status says little: a killed peer is reported as "Endpoint timeout" most of the time.
  if (!failure_) failure_ = ucx_error(ErrorCode::kUnavailable, doing, status);
  drop_control();
}

void Endpoint::send(Message message, uint64_t key) {
  if (handle_ == nullptr || closing_ || failure_) return;
  auto* operation = new Operation{shared_from_this(),
                                  encode_envelope(message.envelope, key),
                                  std::move(message.header),
                                  std::move(message.payload),
                                  {},
                                  data_bytes(message.envelope)};
  operation->pieces[0] = {const_cast<std::byte*>(operation->header.data()),
                          payload_offset(message.envelope)};
  operation->pieces[1] = {const_cast<std::byte*>(operation->payload.data()),
                          message.envelope.payload_bytes};
  ++operations_;
  ++watch_.operations;
  bytes_in_flight_ += operation->bytes;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  parameters.user_data = operation;
  parameters.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    auto* done = static_cast<Operation*>(user_data);
    ucp_request_free(request);
    done->endpoint->finish(done, status);
  };
  // Two pieces, not one copied together: the copy cost 0.1, 0.5 and 0 to 180 µs of 9, 23 and 380 µs
  // one way at 4 KiB, 64 KiB and 1 MiB.
  const void* data = operation->header.data();
  size_t count = payload_offset(message.envelope);
  if (message.envelope.payload_bytes > 0) {
    parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    parameters.datatype = ucp_dt_make_iov();
    data = operation->pieces;
    count = 2;
  }
  void* request = ucp_am_send_nbx(handle_, Worker::kMessageId, operation->envelope.data(),
                                  operation->envelope.size(), data, count, &parameters);
  // A pointer: the callback ends it. Otherwise it ended at once, well or not.
  if (!UCS_PTR_IS_PTR(request)) finish(operation, UCS_PTR_STATUS(request));
}

void Endpoint::send_control(const Message& message, uint64_t key) {
  if (handle_ == nullptr || closing_ || failure_) return;
  control_.push_back({encode_envelope(message.envelope, key), message.header});
  ++watch_.waiting;
  retry_control();
}

void Endpoint::retry_control() {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  while (!control_.empty() && handle_ != nullptr && !closing_ && !failure_) {
    const Control& control = control_.front();
    void* request = ucp_am_send_nbx(handle_, Worker::kMessageId, control.envelope.data(),
                                    control.envelope.size(), control.data.data(),
                                    control.data.size(), &parameters);
    const ucs_status_t status = UCS_PTR_STATUS(request);
    if (status == UCS_ERR_NO_RESOURCE) return;
    if (status != UCS_OK) return fail("sending", status);
    control_.pop_front();
    --watch_.waiting;
  }
}

void Endpoint::drop_control() {
  watch_.waiting -= control_.size();
  control_.clear();
}

void Endpoint::finish(Operation* operation, ucs_status_t status) {
  const std::unique_ptr<Operation> owned(operation);
  --operations_;
  --watch_.operations;
  bytes_in_flight_ -= operation->bytes;
  watch_.attention = true;
  if (status != UCS_OK && !closing_) fail("sending", status);
}

void Endpoint::close() {
  if (closing_) return;
  closing_ = true;
  drop_control();
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(handle_, &parameters);
  if (UCS_PTR_IS_PTR(request)) {
    close_request_ = request;
    return;
  }
  if (UCS_PTR_IS_ERR(request))
    log_warning("ucx", "closing an endpoint: {}", ucs_status_string(UCS_PTR_STATUS(request)));
  handle_ = nullptr;
}

bool Endpoint::closed() {
  if (close_request_ != nullptr && ucp_request_check_status(close_request_) != UCS_INPROGRESS) {
    ucp_request_free(close_request_);
    close_request_ = nullptr;
    handle_ = nullptr;
  }
  return closing_ && handle_ == nullptr && operations_ == 0;
}

}  // namespace troupe::ucx

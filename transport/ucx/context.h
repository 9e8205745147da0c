// UCX's context: the library's state for one transport. Owned by the progress thread.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "base/result.h"

namespace troupe::ucx {

// "doing: what UCX says".
Error ucx_error(ErrorCode code, const char* doing, ucs_status_t status);

class Context {
 public:
  // Errors: kUnavailable (no such interface, or UCX refuses its settings).
  static Result<std::unique_ptr<Context>> create();
  ~Context() { ucp_cleanup(handle_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ucp_context_h handle() const { return handle_; }

 private:
  explicit Context(ucp_context_h handle) : handle_(handle) {}
  ucp_context_h handle_;
};

}  // namespace troupe::ucx

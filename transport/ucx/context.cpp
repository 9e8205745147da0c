#include "transport/ucx/context.h"

#include <fmt/format.h>

namespace troupe::ucx {

Error ucx_error(ErrorCode code, const char* doing, ucs_status_t status) {
  return Error{code, fmt::format("{}: {}", doing, ucs_status_string(status))};
}

Result<std::unique_ptr<Context>> Context::create() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error(ErrorCode::kUnavailable, "reading UCX's settings", status);
  ucp_params_t parameters{};
  parameters.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  // Active messages only: what may write into memory unasked (RMA, atomics) is not offered to
  // peers.
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  parameters.mt_workers_shared = 0;
  parameters.name = "troupe";
  ucp_context_h handle = nullptr;
  status = ucp_init(&parameters, config, &handle);
  ucp_config_release(config);
  if (status != UCS_OK) return ucx_error(ErrorCode::kUnavailable, "starting UCX", status);
  return std::unique_ptr<Context>(new Context(handle));
}

}  // namespace troupe::ucx

// A cluster's status for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "actors/rpc/status.h"

namespace troupe::cli {

// "alive", "suspect", "dead", or "draining" for one that is alive and drained.
const char* state_text(const NodeStatus& node);
std::string status_text(const ClusterStatus& status);
// Which stages shall have a standby and have none, and why: one line a reason, each led by
// `indent`; empty if there are none.
std::string unprotected_text(const DeploymentStatus& deployment, const std::string& indent);
// Field names as in actors/rpc/status.h; incarnations and the like as hexadecimal text.
nlohmann::ordered_json status_json(const ClusterStatus& status);

}  // namespace troupe::cli

// From a choice on the command line to a connected client.
#pragma once

#include <memory>
#include <string>

#include "apps/cli/command.h"
#include "apps/client/client.h"
#include "base/result.h"

namespace troupe::cli {

// `program` is for the daemons' logs. Errors: kUnavailable (no such cluster, or nobody answers: the
// message says what to look at), and those of Client::connect.
Result<std::unique_ptr<Client>> connect_to(const ClusterChoice& choice, const std::string& program);

}  // namespace troupe::cli

#include "apps/cli/cluster_client.h"

#include <fmt/format.h>

#include "apps/cli/cluster_record.h"
#include "apps/cli/daemon_process.h"

namespace troupe::cli {

Result<std::unique_ptr<Client>> connect_to(const ClusterChoice& choice,
                                           const std::string& program) {
  TROUPE_TRY(const std::string address, rpc_address(choice));
  ClientOptions options;
  options.name = program;
  options.answer_max = 10s;
  Result<std::unique_ptr<Client>> client = Client::connect({address}, options);
  if (client.ok() || client.error().code != ErrorCode::kUnavailable || !choice.address.empty())
    return client;
  Error error = client.error();
  const Result<ClusterRecord> record = load_cluster_record(choice.name);
  if (record.ok() && !record.value().daemons.empty()) {
    const DaemonRecord& head = record.value().daemons.front();
    error.message += fmt::format("\nits head {} {}; its log is {}", head.node,
                                 is_running(head) ? "is running" : "is not running", head.log());
  }
  return error;
}

}  // namespace troupe::cli

// From written configurations to a cluster that serves: start each daemon, then ask the head how
// far it is.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "apps/cli/daemon_process.h"
#include "apps/cli/up.h"
#include "apps/client/client.h"
#include "apps/model_store/child.h"

namespace troupe::cli {
namespace {

constexpr size_t kLogLinesShown = 15;

Error with_log(Error error, const DaemonRecord& daemon) {
  const std::string tail = tail_of_file(daemon.log(), kLogLinesShown);
  error.message += tail.empty() ? fmt::format("\n{} wrote no log ({})", daemon.node, daemon.log())
                                : fmt::format("\nthe end of {}:\n{}", daemon.log(), tail);
  return error;
}

std::string progress_text(const ClusterStatus& status, const UpOptions& options) {
  const auto alive =
      std::count_if(status.nodes.begin(), status.nodes.end(),
                    [](const NodeStatus& node) { return node.state == NodeState::kAlive; });
  std::string text = fmt::format("{} of {} nodes", alive, options.nodes);
  if (status.deployments.empty()) return text;
  const DeploymentStatus& deployment = status.deployments.front();
  const auto loaded =
      std::count_if(deployment.stages.begin(), deployment.stages.end(),
                    [](const StageStatus& stage) { return stage.incarnation != 0; });
  text += fmt::format(", {} of {} stages loaded", loaded,
                      options.stages == 0 ? options.nodes : options.stages);
  if (!deployment.detail.empty()) text += "; " + printable(deployment.detail);
  return text;
}

// One look at the head. Serving: true; not yet: false.
Result<bool> look(std::unique_ptr<Client>& client, const ClusterRecord& record,
                  const UpOptions& options, ProgressLine& progress) {
  if (!client) {
    ClientOptions client_options;
    client_options.name = "troupe up";
    client_options.connect_max = 2s;
    client_options.answer_max = 5s;
    Result<std::unique_ptr<Client>> connected = Client::connect({record.rpc}, client_options);
    if (!connected.ok()) {
      if (connected.error().code == ErrorCode::kUnavailable) return false;
      return connected.error();
    }
    client = std::move(connected).value();
  }
  const Result<ClusterStatus> status = client->status();
  if (!status.ok()) {
    // A head that starts anew is a new connection.
    client.reset();
    return false;
  }
  // Somebody else may have taken the port between the check and now.
  if (status.value().cluster_id != record.cluster_id)
    return Error{ErrorCode::kAlreadyExists,
                 fmt::format("another cluster ({}) answers on {}; choose others with --port",
                             printable(status.value().cluster_id), record.rpc)};
  progress.step(progress_text(status.value(), options));
  if (status.value().deployments.empty()) return false;
  const DeploymentStatus& deployment = status.value().deployments.front();
  if (deployment.state == DeploymentState::kFailed)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} cannot be served: {}", printable(deployment.name),
                             printable(deployment.detail))};
  return deployment.state == DeploymentState::kServing;
}

}  // namespace

Result<void> start_and_wait(const UpOptions& options, const std::string& program,
                            ClusterRecord& record, ProgressLine& progress,
                            const std::atomic<bool>& interrupted) {
  progress.step(fmt::format("starting {} daemon{}", options.nodes, options.nodes == 1 ? "" : "s"));
  std::vector<DaemonRecord> planned;
  std::swap(planned, record.daemons);
  for (DaemonRecord& daemon : planned) {
    const Result<void> started = start_daemon(program, daemon);
    if (!started.ok()) return started.error();
    record.daemons.push_back(daemon);
    TROUPE_TRY_VOID(save_cluster_record(record));
  }
  const Instant until = steady_now() + std::chrono::duration_cast<Duration>(
                                           std::chrono::duration<double>(options.timeout_seconds));
  std::unique_ptr<Client> client;
  while (!interrupted) {
    const Result<bool> serving = look(client, record, options, progress);
    if (!serving.ok()) return with_log(serving.error(), record.daemons.front());
    if (serving.value()) return {};
    for (const DaemonRecord& daemon : record.daemons)
      if (!is_running(daemon))
        return with_log({ErrorCode::kIo, daemon.node + " ended while starting"}, daemon);
    if (steady_now() >= until)
      return with_log({ErrorCode::kDeadlineExceeded,
                       fmt::format("it does not serve after {} s", options.timeout_seconds)},
                      record.daemons.front());
    std::this_thread::sleep_for(100ms);
  }
  return Error{ErrorCode::kCancelled, "interrupted"};
}

}  // namespace troupe::cli

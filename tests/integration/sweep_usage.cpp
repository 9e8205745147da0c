#include "tests/integration/sweep_usage.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace troupe::test {
namespace fs = std::filesystem;
namespace {

constexpr Duration kGivenBackMax = 10s;
constexpr double kMemoryFactor = 1.25;
constexpr size_t kDescriptorsMore = 16;

void add(int process, Usage& usage) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    double value = 0;
    words >> key >> value;
    if (key == "Threads:") usage.threads += static_cast<size_t>(value);
    if (key == "RssAnon:") usage.anonymous_mib += value / 1024;
    if (key == "RssShmem:") usage.shared_mib += value / 1024;
  }
  std::error_code ended;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", process), ended)) {
    (void)entry;
    ++usage.descriptors;
  }
  ++usage.processes;
}

}  // namespace

Result<Usage> usage_of(SweepCluster& cluster) {
  Usage usage;
  for (const Instant end = steady_now() + kGivenBackMax;; std::this_thread::sleep_for(50ms)) {
    TROUPE_TRY(const ClusterStatus status, cluster.rpc().status());
    const BatcherStatus& batcher = status.deployments.front().batcher;
    usage.kv_blocks = batcher.kv_blocks_used;
    usage.requests = batcher.requests_queued + batcher.requests_running;
    if ((usage.kv_blocks == 0 && usage.requests == 0) || steady_now() > end) break;
  }
  for (const int process : cluster.cluster().processes()) add(process, usage);
  return usage;
}

std::string to_string(const Usage& usage) {
  return fmt::format(
      "{} processes, {} threads, {} descriptors, {:.0f} MiB of their own, {:.0f} MiB kept for "
      "stages, {} KV blocks, {} requests",
      usage.processes, usage.threads, usage.descriptors, usage.anonymous_mib, usage.shared_mib,
      usage.kv_blocks, usage.requests);
}

std::string growth(const Usage& before, const Usage& after) {
  std::string more;
  const auto check = [&](const char* what, double was, double is, double most) {
    if (is > most)
      more += fmt::format("{}{}: {:.0f}, were {:.0f}", more.empty() ? "" : "; ", what, is, was);
  };
  const auto number = [](size_t count) { return static_cast<double>(count); };
  check("processes", number(before.processes), number(after.processes), number(before.processes));
  check("threads", number(before.threads), number(after.threads), number(before.threads));
  check("descriptors", number(before.descriptors), number(after.descriptors),
        number(before.descriptors + kDescriptorsMore));
  check("MiB of their own", before.anonymous_mib, after.anonymous_mib,
        before.anonymous_mib * kMemoryFactor);
  check("MiB kept for stages", before.shared_mib, after.shared_mib,
        before.shared_mib * kMemoryFactor);
  check("KV blocks", before.kv_blocks, after.kv_blocks, 0);
  check("requests", before.requests, after.requests, 0);
  return more;
}

}  // namespace troupe::test

#include "transport/ucx/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace troupe {
namespace {

constexpr size_t kInterfaceMax = 15;  // IFNAMSIZ - 1

bool is_interface(const std::string& name) {
  return !name.empty() && name.size() <= kInterfaceMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-';
         });
}

bool has(const UcxSetting& setting) {
  const char* value = std::getenv(setting.name.c_str());
  return value != nullptr && setting.value == value;
}

}  // namespace

Result<std::vector<UcxSetting>> ucx_environment(const UcxNetwork& network) {
  if (!is_interface(network.interface))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("interface \"{}\", expected 1 to {} letters, digits, '.', '_' or '-'",
                             network.interface, kInterfaceMax)};
  if (network.port_first > network.port_last ||
      (network.port_first == 0) != (network.port_last == 0))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("port range {} to {}, expected first <= last, or 0 to 0",
                             network.port_first, network.port_last)};
  const std::string ports =
      network.port_first == 0 ? "0" : fmt::format("{}-{}", network.port_first, network.port_last);
  return std::vector<UcxSetting>{
      // Shared memory does not survive a peer's kill: tcp only.
      {"UCX_TLS", "tcp"},
      // One: 1.13 picks interfaces by guessed bandwidth, not by reachability.
      {"UCX_NET_DEVICES", network.interface},
      {"UCX_TCP_PORT_RANGE", ports},
      // Without it a peer killed during large sends aborts the survivor (a double completion in
      // UCX).
      {"UCX_ZCOPY_THRESH", "inf"},
      // Connecting to a host that is cut off would block the progress thread for 134 s.
      {"UCX_TCP_CONN_NB", "y"},
      // The progress thread goes before all others (base/time_slice.h): on a spinlock it would keep
      // UCX's own thread from letting go of it, for a second at a time.
      {"UCX_USE_MT_MUTEX", "y"},
      {"UCX_TCP_TX_SEG_SIZE", "256k", false},
      {"UCX_TCP_RX_SEG_SIZE", "1m", false},
      // Beats are ours, on the peer link; UCX's own defeat those of TCP.
      {"UCX_KEEPALIVE_INTERVAL", "inf", false},
      // UCX would take SEGV, BUS, FPE and HUP for itself. Read when the library is loaded.
      {"UCX_HANDLE_ERRORS", "none", false},
      {"UCX_DEBUG_SIGNO", "0", false},
      // UCX would patch mmap and munmap in our process; over tcp it has no use for that, and it
      // breaks
      // ThreadSanitizer.
      {"UCX_MEM_EVENTS", "no", false},
      {"UCX_WARN_UNUSED_ENV_VARS", "n", false},
      // A dead address alone costs 25 error lines; we report failures ourselves.
      {"UCX_LOG_LEVEL", "fatal", false},
  };
}

Result<void> check_ucx_environment(const UcxNetwork& network) {
  TROUPE_TRY(const std::vector<UcxSetting> settings, ucx_environment(network));
  for (const UcxSetting& setting : settings) {
    if (!setting.binding || has(setting)) continue;
    const char* value = std::getenv(setting.name.c_str());
    return Error{ErrorCode::kUnavailable,
                 fmt::format("UCX needs {}={} in the environment, there it is {}", setting.name,
                             setting.value, value == nullptr ? "missing" : value)};
  }
  return {};
}

Result<void> set_ucx_environment(const UcxNetwork& network) {
  TROUPE_TRY(const std::vector<UcxSetting> settings, ucx_environment(network));
  for (const UcxSetting& setting : settings) {
    if (setenv(setting.name.c_str(), setting.value.c_str(), setting.binding ? 1 : 0) != 0)
      return Error{ErrorCode::kIo, fmt::format("setting {}: {}", setting.name, strerror(errno))};
  }
  return {};
}

Result<void> enter_ucx_environment(const UcxNetwork& network, char** arguments) {
  TROUPE_TRY(const std::vector<UcxSetting> settings, ucx_environment(network));
  const bool complete = std::all_of(settings.begin(), settings.end(), [](const UcxSetting& s) {
    return has(s) || (!s.binding && std::getenv(s.name.c_str()) != nullptr);
  });
  if (complete) return {};
  TROUPE_TRY_VOID(set_ucx_environment(network));
  // By its real path: executed as /proc/self/exe it would be called "exe" in every list of
  // processes.
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) {
    program[length] = '\0';
    execv(program, arguments);
  }
  return Error{ErrorCode::kIo, fmt::format("executing this program again: {}", strerror(errno))};
}

}  // namespace troupe

#include "apps/cli/cluster_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace fs = std::filesystem;

namespace troupe::cli {
namespace {

std::string record_path(const std::string& folder) {
  return folder + "/cluster.json";
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<DaemonRecord> read_daemon(const nlohmann::json& object, const Error& bad) {
  if (!object.is_object()) return bad;
  DaemonRecord daemon;
  daemon.node = text_of(object, "node");
  daemon.folder = text_of(object, "folder");
  const auto process = object.find("process"), ticks = object.find("start_ticks");
  if (daemon.node.empty() || daemon.folder.empty() || process == object.end() ||
      !process->is_number_integer() || ticks == object.end() || !ticks->is_number_unsigned())
    return bad;
  daemon.process = process->get<int64_t>();
  daemon.start_ticks = ticks->get<uint64_t>();
  // 0 and negative numbers mean groups of processes to kill().
  if (daemon.process <= 1) return bad;
  return daemon;
}

}  // namespace

Result<std::string> cluster_folder(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (name.empty() || name.size() > 64 || name.front() == '.' ||
      !std::all_of(name.begin(), name.end(), fits))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("\"{}\" is no cluster name: 1 to 64 letters, digits and . _ -, not "
                             "beginning with a dot",
                             name)};
  const char* own = std::getenv("TROUPE_HOME");
  const char* home = std::getenv("HOME");
  if (own && *own) return fs::absolute(own).string() + "/clusters/" + name;
  if (home && *home) return std::string(home) + "/.troupe/clusters/" + name;
  return Error{ErrorCode::kInvalidArgument, "set TROUPE_HOME or HOME: clusters are kept there"};
}

Result<ClusterRecord> load_cluster_record(const std::string& name) {
  TROUPE_TRY(const std::string folder, cluster_folder(name));
  const std::string path = record_path(folder);
  std::error_code failure;
  if (!fs::exists(path, failure))
    return Error{ErrorCode::kNotFound, fmt::format("no cluster named \"{}\"", name)};
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return Error{ErrorCode::kIo, path + ": cannot be read"};
  const Error bad{ErrorCode::kInvalidFile, path + ": is no cluster record; remove it"};
  const nlohmann::json document = nlohmann::json::parse(text.str(), nullptr, false);
  if (!document.is_object()) return bad;
  ClusterRecord record{.name = name,
                       .cluster_id = text_of(document, "cluster_id"),
                       .rpc = text_of(document, "rpc"),
                       .model = text_of(document, "model"),
                       .daemons = {}};
  const auto daemons = document.find("daemons");
  if (record.rpc.empty() || daemons == document.end() || !daemons->is_array()) return bad;
  for (const auto& object : *daemons) {
    TROUPE_TRY(DaemonRecord daemon, read_daemon(object, bad));
    record.daemons.push_back(std::move(daemon));
  }
  return record;
}

Result<void> save_cluster_record(const ClusterRecord& record) {
  TROUPE_TRY(const std::string folder, cluster_folder(record.name));
  nlohmann::ordered_json document = {{"name", record.name},
                                     {"cluster_id", record.cluster_id},
                                     {"rpc", record.rpc},
                                     {"model", record.model},
                                     {"daemons", nlohmann::ordered_json::array()}};
  for (const DaemonRecord& daemon : record.daemons)
    document["daemons"].push_back({{"node", daemon.node},
                                   {"folder", daemon.folder},
                                   {"process", daemon.process},
                                   {"start_ticks", daemon.start_ticks}});
  const std::string path = record_path(folder), fresh = fmt::format("{}.{}", path, getpid());
  std::error_code failure;
  fs::create_directories(folder, failure);
  std::ofstream file(fresh);
  file << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return Error{ErrorCode::kIo, fresh + ": cannot be written"};
  fs::rename(fresh, path, failure);
  if (failure)
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path, failure.message())};
  return {};
}

Result<void> remove_cluster_record(const std::string& name) {
  TROUPE_TRY(const std::string folder, cluster_folder(name));
  std::error_code failure;
  fs::remove(record_path(folder), failure);
  if (failure)
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot be removed: {}", record_path(folder), failure.message())};
  return {};
}

}  // namespace troupe::cli

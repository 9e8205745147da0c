// The model registry: opens model files of this node, checks that they are what was asked for, and
// shares one mapping. Stages then read their own layers only: pages nobody touches are never
// loaded.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "actors/messages.h"
#include "models/architecture.h"
#include "models/gguf.h"

namespace troupe {

struct LoadedModel {
  GgufFile file;
  ModelConfig config;
  std::string content_id;
};

// Errors: those of the file, and kInvalidFile if its content is not `content_id` (empty: any).
Result<ModelPtr> open_model(const std::string& path, const std::string& content_id);

struct RegistryOptions {
  // Simulation puts something here that needs no files.
  std::function<Result<ModelPtr>(const std::string&, const std::string&)> open = open_model;
};

struct RegistryState {
  static inline const char* name = "model_registry";
  RegistryOptions options;
  std::map<std::string, std::weak_ptr<const LoadedModel>> open;  // by path
};

ModelRegistry::behavior_type model_registry(ModelRegistry::stateful_pointer<RegistryState> self,
                                            RegistryOptions options);

}  // namespace troupe

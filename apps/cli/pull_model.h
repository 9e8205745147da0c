// Getting a model's file for a command, with progress shown.
#pragma once

#include <string>

#include "apps/model_store/model_store.h"
#include "base/result.h"

namespace troupe::cli {

// A known name is fetched, a file is registered (under `as`, unless empty).
Result<StoredModel> pull_model(const std::string& model, const std::string& as);
// The path of a file or of a model in the store; a known name that is not there yet is fetched
// first.
Result<std::string> model_path(const std::string& name_or_path);

}  // namespace troupe::cli

// From a deployment's options and a model to what the replica machine needs to know: sizes and
// costs of its layers.
#pragma once

#include "actors/logic/recovery.h"
#include "actors/scheduler.h"

namespace troupe {

// Errors: kInvalidArgument (a split or a number of stages that does not fit the model).
Result<ReplicaSpec> replica_spec(const DeploymentOptions& deployment, const LoadedModel& model);

}  // namespace troupe

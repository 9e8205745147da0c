// Waiting for what `troupe drain`, `troupe move` and `troupe standby` have ordered: the cluster
// answers as soon as it has begun, and its status shows the rest.
#pragma once

#include <functional>
#include <string>

#include "actors/rpc/requests.h"
#include "apps/cli/terminal.h"
#include "apps/client/client.h"
#include "base/ids.h"

namespace troupe::cli {

struct MoveVerdict {
  enum class Kind { kGoing, kDone, kFailed };
  Kind kind = Kind::kGoing;
  std::string text;  // for people: what is going on, or why it came to nothing
};

// Done when the cluster serves without a stage on that node. Failed only when nobody drains it any
// more: a node that cannot be emptied now may be later.
MoveVerdict judge_drain(const ClusterStatus& status, const NodeId& node);
// Done when the cluster serves with the stage there, failed when the move was undone.
MoveVerdict judge_move(const ClusterStatus& status, const MoveCall& call);

// Done when the cluster serves and every stage that can have a standby has one (or none has, if
// that is the policy). Failed when the policy is another by now.
MoveVerdict judge_standby(const ClusterStatus& status, const StandbyCall& call);
// Stages of which a standby could take the seat.
size_t stages_followed(const DeploymentStatus& deployment);

// The deployment a name means, empty: the first; null if there is none.
const DeploymentStatus* deployment_of(const ClusterStatus& status, const std::string& name);

// Looks at the cluster until the verdict is done, and returns that status. A head that does not
// answer for a while is waited for. Errors: kCancelled (the verdict is failed), kDeadlineExceeded;
// both with the verdict's text.
Result<ClusterStatus> wait_for(Client& client, Duration deadline, ProgressLine& progress,
                               const std::function<MoveVerdict(const ClusterStatus&)>& judge);

}  // namespace troupe::cli

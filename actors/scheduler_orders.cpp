// What people ask of the scheduler: drain a node, move a stage, break something. It looks up whom
// they mean; whether it can be done is decided by logic/recovery.
#include <fmt/format.h>

#include "actors/dataplane/fault_points.h"
#include "actors/deadlines.h"
#include "actors/scheduler.h"

namespace troupe {
namespace {

constexpr size_t kDrainedMax = 1024;  // names, as many as a cluster has members

}  // namespace

// A node that is no member now, in words.
Error SchedulerState::not_here(const NodeId& node) const {
  if (lost_nodes.contains(node))
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is dead: it takes part again when its daemon is back", node)};
  std::string names;
  for (const auto& [id, facts] : nodes) names.append(names.empty() ? "" : ", ").append(id);
  return Error{ErrorCode::kNotFound, fmt::format("no node {}: there are {}", node, names)};
}

Result<void> SchedulerState::order(const DrainCall& call) {
  if (!call.drained) {
    if (drained.erase(call.node) == 0)
      return nodes.contains(call.node) ? Result<void>() : not_here(call.node);
    note(call.node + " is taken back: it takes stages again");
  } else {
    if (!nodes.contains(call.node)) return not_here(call.node);
    if (drained.size() >= kDrainedMax)
      return Error{
          ErrorCode::kResourceExhausted,
          fmt::format("{} nodes are drained, limit {}; undrain some", drained.size(), kDrainedMax)};
    if (!drained.insert(call.node).second) return {};
    note(call.node + " is drained: it takes no new stages");
  }
  nodes_changed(call.node + (call.drained ? " is drained" : " is taken back"));
  return {};
}

Result<void> SchedulerState::check_deployment(const std::string& wanted) const {
  if (!wanted.empty() && wanted != options.deployment.name)
    return Error{ErrorCode::kNotFound,
                 fmt::format("no model '{}' here, there is '{}'", wanted, options.deployment.name)};
  if (failure) return *failure;
  if (!replica) return Error{ErrorCode::kUnavailable, "the model is being opened; try again"};
  return {};
}

Result<void> SchedulerState::order(const StandbyCall& call) {
  TROUPE_TRY_VOID(check_deployment(call.model));
  options.deployment.standby = call.policy;
  carry_out(replica->on_policy(call.policy, self->clock().now()));
  return {};
}

Result<void> SchedulerState::order(const MoveCall& call) {
  TROUPE_TRY_VOID(check_deployment(call.model));
  if (!nodes.contains(call.node)) return not_here(call.node);
  TROUPE_TRY(const ReplicaActions actions,
             replica->on_move(call.stage, call.node, self->clock().now()));
  if (!actions.empty()) note(fmt::format("stage {} is to move to {}", call.stage, call.node));
  carry_out(actions);
  return {};
}

void SchedulerState::inject(const FaultCall& fault,
                            const std::function<void(std::optional<Error>)>& done) {
  const std::string text = fault.text.empty() ? to_string(fault.kind) : fault.text;
  // The node checks it, too; but a mistake is told here even while no stage runs.
  if (const auto parsed = parse_fault(text); !parsed.ok()) return done(parsed.error());
  if (const auto known = check_deployment(fault.model); !known.ok()) return done(known.error());
  const size_t stages = replica->view().seats.size();
  if (fault.stage >= stages)
    return done(Error{ErrorCode::kNotFound,
                      stages == 0 ? "no stage is placed yet"
                                  : fmt::format("no stage {}: {} has stages 0 to {}", fault.stage,
                                                options.deployment.name, stages - 1)});
  const NodeId node = replica->view().seats[fault.stage].node;
  self->request(
          options.peer, caf::timespan{kAnswerMax},
          CallPeer{node, InjectFault{options.deployment.name, fault.stage, text}, Duration{5s}})
      .then(
          [done](const PeerAnswer& answer) {
            const auto* error = std::get_if<ControlError>(&answer.body);
            done(error ? std::optional(Error{error->code, error->message}) : std::nullopt);
          },
          [done, this](const caf::error& error) {
            done(Error{ErrorCode::kInternal, self->system().render(error)});
          });
}

}  // namespace troupe

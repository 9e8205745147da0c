#include "transport/control_limits.h"

#include <fmt/format.h>

#include "transport/transport.h"
#include "transport/wire_text.h"

namespace troupe {
namespace {

Error outside(std::string what) {
  return Error{ErrorCode::kInvalidArgument, std::move(what)};
}

Result<void> check_name(const char* field, const std::string& text, size_t min, size_t max) {
  if (text.size() < min || text.size() > max)
    return outside(fmt::format("{} of {} bytes, allowed {} to {}", field, text.size(), min, max));
  if (!is_clean_text(text)) return outside(fmt::format("{} is not printable UTF-8", field));
  return {};
}

Result<void> check_number(const char* field, uint64_t value, uint64_t min, uint64_t max) {
  if (value < min || value > max)
    return outside(fmt::format("{} {}, allowed {} to {}", field, value, min, max));
  return {};
}

Result<void> check_layers(LayerRange layers) {
  if (layers.first > layers.last || layers.last > kLayersMax)
    return outside(
        fmt::format("layers [{}, {}), allowed up to {}", layers.first, layers.last, kLayersMax));
  return {};
}

Result<void> check_stage(const std::string& deployment, uint32_t stage) {
  TROUPE_TRY_VOID(check_name("deployment", deployment, 1, kDeploymentMax));
  return check_number("stage", stage, 0, kStagesMax - 1);
}

Result<void> check(const NodeInventory& body) {
  TROUPE_TRY_VOID(check_name("kernels", body.kernels, 0, 64));
  return check_name("software", body.software, 0, 256);
}

Result<void> check(const AssignStage& body) {
  const StageSpec& spec = body.spec;
  TROUPE_TRY_VOID(check_stage(spec.deployment, spec.stage));
  TROUPE_TRY_VOID(check_number("stages", spec.stages, uint64_t{spec.stage} + 1, kStagesMax));
  TROUPE_TRY_VOID(check_name("model path", spec.model_path, 1, kModelPathMax));
  TROUPE_TRY_VOID(check_name("content id", spec.content_id, 0, 128));
  TROUPE_TRY_VOID(check_layers(spec.layers));
  TROUPE_TRY_VOID(check_number("kv blocks", spec.kv_blocks, 0, uint64_t{1} << 24));
  TROUPE_TRY_VOID(check_number("threads", spec.threads, 0, 4096));
  TROUPE_TRY_VOID(check_number("rows per micro-batch", spec.rows_max, 0, uint64_t{1} << 20));
  return check_name("kernels", spec.kernels, 0, 64);
}

Result<void> check(const StageReady& body) {
  TROUPE_TRY_VOID(check_stage(body.deployment, body.stage));
  TROUPE_TRY_VOID(check_layers(body.layers));
  return check_number("bytes of data address", body.data_address.size(), 0, kAddressMax);
}

Result<void> check_seat(const Seat& seat) {
  TROUPE_TRY_VOID(check_node_id(seat.node));
  TROUPE_TRY_VOID(check_layers(seat.layers));
  return check_number("bytes of data address", seat.data_address.size(), 0, kAddressMax);
}

Result<void> check(const InstallView& body) {
  const View& view = body.view;
  TROUPE_TRY_VOID(check_name("deployment", view.deployment, 1, kDeploymentMax));
  TROUPE_TRY_VOID(
      check_number("bytes of batcher address", view.batcher_address.size(), 0, kAddressMax));
  TROUPE_TRY_VOID(check_number("seats", view.seats.size(), 1, kStagesMax));
  for (const Seat& seat : view.seats) TROUPE_TRY_VOID(check_seat(seat));
  uint64_t least = 0;
  for (const Standby& standby : view.standbys) {
    TROUPE_TRY_VOID(
        check_number("stage of a standby", standby.stage, least, view.seats.size() - 1));
    TROUPE_TRY_VOID(check_seat(standby.seat));
    least = uint64_t{standby.stage} + 1;
  }
  return {};
}

Result<void> check(const InjectFault& body) {
  TROUPE_TRY_VOID(check_stage(body.deployment, body.stage));
  return check_name("fault", body.fault, 1, 64);
}

Result<void> check(const StageLost& body) {
  return check_stage(body.deployment, body.stage);
}
Result<void> check(const ViewInstalled& body) {
  TROUPE_TRY_VOID(check_name("deployment", body.deployment, 1, kDeploymentMax));
  TROUPE_TRY_VOID(check_number("stages that hold something", body.held.size(), 0, kStagesMax));
  for (const StageHeld& held : body.held) {
    TROUPE_TRY_VOID(check_number("stage", held.stage, 0, kStagesMax - 1));
    TROUPE_TRY_VOID(check_number("sequences held", held.sequences.size(), 0, kSequencesHeldMax));
  }
  return {};
}
Result<void> check(const StopStage& body) {
  return check_stage(body.deployment, body.stage);
}
Result<void> check(const StageFigures& body) {
  return check_stage(body.deployment, body.stage);
}
Result<void> check(const Evicted&) {
  return {};
}  // text for people only: cut and cleaned
Result<void> check(const Leaving&) {
  return {};
}
Result<void> check(const ControlError&) {
  return {};
}
Result<void> check(const Acknowledged&) {
  return {};
}

}  // namespace

Result<void> check_control(const ControlBody& body) {
  return std::visit([](const auto& one) { return check(one); }, body);
}

Result<void> check_node_id(const NodeId& node) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '/' || c == '-';
  };
  if (node.empty() || node.size() > 64)
    return outside(fmt::format("node id of {} characters, allowed 1 to 64", node.size()));
  if (!std::all_of(node.begin(), node.end(), allowed))
    return outside(
        fmt::format("node id \"{}\", allowed are A-Z a-z 0-9 . _ / -", clean_text(node, 64)));
  return {};
}

}  // namespace troupe

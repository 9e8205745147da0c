// Control messages to bytes and back. For each body: check() states its limits once, for both
// directions; write() and read() carry the fields over.

#include "transport/control.h"

#include <algorithm>
#include <type_traits>

#include "schemas/common.capnp.h"
#include "schemas/control.capnp.h"
#include "transport/schema_message.h"
#include "transport/transport.h"
#include "transport/wire_text.h"

namespace troupe {
namespace {

namespace schema = wire::control;

// The codes' numbers are part of the protocol.
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) == 0);
static_assert(static_cast<int>(ErrorCode::kUnavailable) == 7);
static_assert(static_cast<int>(ErrorCode::kInternal) == 13);

// ---- limits

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

Result<void> check(const InstallView& body) {
  const View& view = body.view;
  TROUPE_TRY_VOID(check_name("deployment", view.deployment, 1, kDeploymentMax));
  TROUPE_TRY_VOID(
      check_number("bytes of batcher address", view.batcher_address.size(), 0, kAddressMax));
  TROUPE_TRY_VOID(check_number("seats", view.seats.size(), 1, kStagesMax));
  for (const Seat& seat : view.seats) {
    TROUPE_TRY_VOID(check_node_id(seat.node));
    TROUPE_TRY_VOID(check_layers(seat.layers));
    TROUPE_TRY_VOID(
        check_number("bytes of data address", seat.data_address.size(), 0, kAddressMax));
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
  return check_stage(body.deployment, body.stage);
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

// ---- fields

std::string name_from(capnp::Text::Reader text) {
  return {text.cStr(), text.size()};
}
std::string people_text(std::string_view text) {
  return clean_text(text, kControlTextMax);
}
std::string people_text_from(capnp::Text::Reader text) {
  return people_text(std::string_view(text.cStr(), text.size()));
}

capnp::Data::Reader data_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> bytes_from(capnp::Data::Reader data) {
  const auto* first = reinterpret_cast<const std::byte*>(data.begin());
  return {first, first + data.size()};
}

void write(wire::LayerRange::Builder to, LayerRange layers) {
  to.setFirst(layers.first);
  to.setLast(layers.last);
}
LayerRange layers_from(wire::LayerRange::Reader from) {
  return {.first = from.getFirst(), .last = from.getLast()};
}

void write(schema::ControlMessage::Body::Builder body, const NodeInventory& value) {
  auto to = body.initInventory();
  to.setMemoryBytes(value.memory_bytes);
  to.setMemoryFreeBytes(value.memory_free_bytes);
  to.setCores(value.cores);
  to.setStagesMax(value.stages_max);
  to.setKernels(value.kernels);
  to.setSoftware(value.software);
  to.setProcess(value.process);
}
NodeInventory read(schema::NodeInventory::Reader from) {
  return {.memory_bytes = from.getMemoryBytes(),
          .memory_free_bytes = from.getMemoryFreeBytes(),
          .cores = from.getCores(),
          .stages_max = from.getStagesMax(),
          .kernels = name_from(from.getKernels()),
          .software = name_from(from.getSoftware()),
          .process = from.getProcess()};
}

void write(schema::ControlMessage::Body::Builder body, const AssignStage& value) {
  auto to = body.initAssignStage();
  to.setDeployment(value.spec.deployment);
  to.setModelPath(value.spec.model_path);
  to.setContentId(value.spec.content_id);
  to.setStage(value.spec.stage);
  to.setStages(value.spec.stages);
  write(to.initLayers(), value.spec.layers);
  to.setKvBlocks(value.spec.kv_blocks);
  to.setThreads(value.spec.threads);
  to.setRowsMax(value.spec.rows_max);
  to.setKernels(value.spec.kernels);
}
AssignStage read(schema::StageSpec::Reader from) {
  return {.spec = {.deployment = name_from(from.getDeployment()),
                   .model_path = name_from(from.getModelPath()),
                   .content_id = name_from(from.getContentId()),
                   .stage = from.getStage(),
                   .stages = from.getStages(),
                   .layers = layers_from(from.getLayers()),
                   .kv_blocks = from.getKvBlocks(),
                   .threads = from.getThreads(),
                   .rows_max = from.getRowsMax(),
                   .kernels = name_from(from.getKernels())}};
}

void write(schema::ControlMessage::Body::Builder body, const StageReady& value) {
  auto to = body.initStageReady();
  to.setDeployment(value.deployment);
  to.setStage(value.stage);
  write(to.initLayers(), value.layers);
  to.setIncarnation(value.incarnation.value);
  to.setDataAddress(data_of(value.data_address));
  to.setProcess(value.process);
  to.setWeightBytes(value.weight_bytes);
  to.setKvBytes(value.kv_bytes);
}
StageReady read(schema::StageReady::Reader from) {
  return {.deployment = name_from(from.getDeployment()),
          .stage = from.getStage(),
          .layers = layers_from(from.getLayers()),
          .incarnation = {from.getIncarnation()},
          .data_address = bytes_from(from.getDataAddress()),
          .process = from.getProcess(),
          .weight_bytes = from.getWeightBytes(),
          .kv_bytes = from.getKvBytes()};
}

void write(schema::ControlMessage::Body::Builder body, const StageLost& value) {
  auto to = body.initStageLost();
  to.setDeployment(value.deployment);
  to.setStage(value.stage);
  to.setIncarnation(value.incarnation.value);
  to.setCause(people_text(value.cause));
  to.setRestarting(value.restarting);
}
StageLost read(schema::StageLost::Reader from) {
  return {.deployment = name_from(from.getDeployment()),
          .stage = from.getStage(),
          .incarnation = {from.getIncarnation()},
          .cause = people_text_from(from.getCause()),
          .restarting = from.getRestarting()};
}

void write(schema::ControlMessage::Body::Builder body, const InstallView& value) {
  auto to = body.initInstallView();
  to.setDeployment(value.view.deployment);
  to.setNumber(value.view.number.value);
  to.setBatcher(value.view.batcher.value);
  to.setBatcherAddress(data_of(value.view.batcher_address));
  auto seats = to.initSeats(static_cast<uint32_t>(value.view.seats.size()));
  for (uint32_t i = 0; i < seats.size(); ++i) {
    const Seat& seat = value.view.seats[i];
    seats[i].setNode(seat.node);
    seats[i].setNodeIncarnation(seat.node_incarnation.value);
    seats[i].setIncarnation(seat.incarnation.value);
    write(seats[i].initLayers(), seat.layers);
    seats[i].setDataAddress(data_of(seat.data_address));
    seats[i].setProcess(seat.process);
  }
}
InstallView read(schema::View::Reader from) {
  View view{.deployment = name_from(from.getDeployment()),
            .number = {from.getNumber()},
            .batcher = {from.getBatcher()},
            .batcher_address = bytes_from(from.getBatcherAddress()),
            .seats = {}};
  const auto seats = from.getSeats();
  // One seat too many is enough for check() to refuse; a hostile count takes no memory.
  const uint32_t count = std::min<uint32_t>(seats.size(), kStagesMax + 1);
  for (uint32_t i = 0; i < count; ++i)
    view.seats.push_back({.node = name_from(seats[i].getNode()),
                          .node_incarnation = {seats[i].getNodeIncarnation()},
                          .incarnation = {seats[i].getIncarnation()},
                          .layers = layers_from(seats[i].getLayers()),
                          .data_address = bytes_from(seats[i].getDataAddress()),
                          .process = seats[i].getProcess()});
  return {.view = std::move(view)};
}

void write(schema::ControlMessage::Body::Builder body, const ViewInstalled& value) {
  auto to = body.initViewInstalled();
  to.setDeployment(value.deployment);
  to.setView(value.view.value);
  to.setStage(value.stage);
}
ViewInstalled read(schema::ViewInstalled::Reader from) {
  return {.deployment = name_from(from.getDeployment()),
          .view = {from.getView()},
          .stage = from.getStage()};
}

void write(schema::ControlMessage::Body::Builder body, const StopStage& value) {
  auto to = body.initStopStage();
  to.setDeployment(value.deployment);
  to.setStage(value.stage);
}
StopStage read(schema::StopStage::Reader from) {
  return {.deployment = name_from(from.getDeployment()), .stage = from.getStage()};
}

void write(schema::ControlMessage::Body::Builder body, const StageFigures& value) {
  auto to = body.initFigures();
  to.setDeployment(value.deployment);
  to.setStage(value.stage);
  to.setIncarnation(value.incarnation.value);
  to.setMicroBatches(value.micro_batches);
  to.setRows(value.rows);
  to.setBusyNs(value.busy_ns);
  to.setIdleNs(value.idle_ns);
  to.setHopP50Ns(value.hop_p50_ns);
  to.setHopP99Ns(value.hop_p99_ns);
  to.setStepP50Ns(value.step_p50_ns);
  to.setStepP99Ns(value.step_p99_ns);
  to.setFencedFrames(value.fenced_frames);
  to.setGarbageFrames(value.garbage_frames);
  to.setWeightBytes(value.weight_bytes);
  to.setKvBytes(value.kv_bytes);
  to.setResidentBytes(value.resident_bytes);
}
StageFigures read(schema::StageFigures::Reader from) {
  return {.deployment = name_from(from.getDeployment()),
          .stage = from.getStage(),
          .incarnation = {from.getIncarnation()},
          .micro_batches = from.getMicroBatches(),
          .rows = from.getRows(),
          .busy_ns = from.getBusyNs(),
          .idle_ns = from.getIdleNs(),
          .hop_p50_ns = from.getHopP50Ns(),
          .hop_p99_ns = from.getHopP99Ns(),
          .step_p50_ns = from.getStepP50Ns(),
          .step_p99_ns = from.getStepP99Ns(),
          .fenced_frames = from.getFencedFrames(),
          .garbage_frames = from.getGarbageFrames(),
          .weight_bytes = from.getWeightBytes(),
          .kv_bytes = from.getKvBytes(),
          .resident_bytes = from.getResidentBytes()};
}

void write(schema::ControlMessage::Body::Builder body, const InjectFault& value) {
  auto to = body.initInjectFault();
  to.setDeployment(value.deployment);
  to.setStage(value.stage);
  to.setFault(value.fault);
}
InjectFault read(schema::InjectFault::Reader from) {
  return {.deployment = name_from(from.getDeployment()),
          .stage = from.getStage(),
          .fault = name_from(from.getFault())};
}

void write(schema::ControlMessage::Body::Builder body, const Evicted& value) {
  body.setEvicted(people_text(value.why));
}
void write(schema::ControlMessage::Body::Builder body, const Leaving& value) {
  body.setLeaving(people_text(value.why));
}
void write(schema::ControlMessage::Body::Builder body, const ControlError& value) {
  auto to = body.initError();
  to.setCode(static_cast<uint8_t>(value.code));
  to.setMessage(people_text(value.message));
}
ControlError read(wire::Failure::Reader from) {
  const uint8_t code = std::min(from.getCode(), static_cast<uint8_t>(ErrorCode::kInternal));
  return {.code = static_cast<ErrorCode>(code), .message = people_text_from(from.getMessage())};
}
void write(schema::ControlMessage::Body::Builder body, const Acknowledged&) {
  body.setAcknowledged();
}

Result<ControlBody> read_body(schema::ControlMessage::Body::Reader body) {
  switch (body.which()) {
    case schema::ControlMessage::Body::ACKNOWLEDGED:
      return ControlBody(Acknowledged{});
    case schema::ControlMessage::Body::INVENTORY:
      return ControlBody(read(body.getInventory()));
    case schema::ControlMessage::Body::ASSIGN_STAGE:
      return ControlBody(read(body.getAssignStage()));
    case schema::ControlMessage::Body::STAGE_READY:
      return ControlBody(read(body.getStageReady()));
    case schema::ControlMessage::Body::STAGE_LOST:
      return ControlBody(read(body.getStageLost()));
    case schema::ControlMessage::Body::INSTALL_VIEW:
      return ControlBody(read(body.getInstallView()));
    case schema::ControlMessage::Body::VIEW_INSTALLED:
      return ControlBody(read(body.getViewInstalled()));
    case schema::ControlMessage::Body::STOP_STAGE:
      return ControlBody(read(body.getStopStage()));
    case schema::ControlMessage::Body::FIGURES:
      return ControlBody(read(body.getFigures()));
    case schema::ControlMessage::Body::INJECT_FAULT:
      return ControlBody(read(body.getInjectFault()));
    case schema::ControlMessage::Body::EVICTED:
      return ControlBody(Evicted{people_text_from(body.getEvicted())});
    case schema::ControlMessage::Body::LEAVING:
      return ControlBody(Leaving{people_text_from(body.getLeaving())});
    case schema::ControlMessage::Body::ERROR:
      return ControlBody(read(body.getError()));
  }
  return Error{ErrorCode::kInvalidFrame,
               fmt::format("control message of unknown kind {}", static_cast<int>(body.which()))};
}

}  // namespace

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

Result<SharedBuffer> encode_control(const ControlMessage& message) {
  const Result<void> checked =
      std::visit([](const auto& body) { return check(body); }, message.body);
  if (!checked.ok()) return with_context(checked.error(), "control message");
  return write_schema<schema::ControlMessage>(
      kControlMessageMax, [&message](schema::ControlMessage::Builder to) {
        to.setCall(message.call);
        to.setAnswer(message.answer);
        std::visit([&to](const auto& body) { write(to.getBody(), body); }, message.body);
      });
}

Result<ControlMessage> decode_control(ByteSpan bytes) {
  if (bytes.size() > kControlMessageMax)
    return Error{ErrorCode::kInvalidFrame, fmt::format("control message of {} bytes, limit {}",
                                                       bytes.size(), kControlMessageMax)};
  return read_schema<schema::ControlMessage>(
      bytes, [](schema::ControlMessage::Reader from) -> Result<ControlMessage> {
        TROUPE_TRY(ControlBody body, read_body(from.getBody()));
        const Result<void> checked = std::visit([](const auto& part) { return check(part); }, body);
        if (!checked.ok())
          return Error{ErrorCode::kInvalidFrame, "control message: " + checked.error().message};
        return ControlMessage{
            .call = from.getCall(), .answer = from.getAnswer(), .body = std::move(body)};
      });
}

}  // namespace troupe

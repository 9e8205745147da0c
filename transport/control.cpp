// Control messages to bytes and back: write() and read() carry the fields of each body over; what
// is allowed is in control_limits.cpp.

#include "transport/control.h"

#include <algorithm>
#include <type_traits>

#include "schemas/common.capnp.h"
#include "schemas/control.capnp.h"
#include "transport/control_limits.h"
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
  to.setJournalBytes(value.spec.journal_bytes);
  to.setBatcher(value.spec.batcher.value);
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
                   .kernels = name_from(from.getKernels()),
                   .journal_bytes = from.getJournalBytes(),
                   .batcher = {from.getBatcher()}}};
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

void write(schema::Seat::Builder to, const Seat& seat) {
  to.setNode(seat.node);
  to.setNodeIncarnation(seat.node_incarnation.value);
  to.setIncarnation(seat.incarnation.value);
  write(to.initLayers(), seat.layers);
  to.setDataAddress(data_of(seat.data_address));
  to.setProcess(seat.process);
}
Seat read(schema::Seat::Reader from) {
  return {.node = name_from(from.getNode()),
          .node_incarnation = {from.getNodeIncarnation()},
          .incarnation = {from.getIncarnation()},
          .layers = layers_from(from.getLayers()),
          .data_address = bytes_from(from.getDataAddress()),
          .process = from.getProcess()};
}

void write(schema::ControlMessage::Body::Builder body, const InstallView& value) {
  auto to = body.initInstallView();
  to.setDeployment(value.view.deployment);
  to.setNumber(value.view.number.value);
  to.setBatcher(value.view.batcher.value);
  to.setBatcherAddress(data_of(value.view.batcher_address));
  auto seats = to.initSeats(static_cast<uint32_t>(value.view.seats.size()));
  for (uint32_t i = 0; i < seats.size(); ++i) write(seats[i], value.view.seats[i]);
  auto standbys = to.initStandbys(static_cast<uint32_t>(value.view.standbys.size()));
  for (uint32_t i = 0; i < standbys.size(); ++i) {
    standbys[i].setStage(value.view.standbys[i].stage);
    write(standbys[i].initSeat(), value.view.standbys[i].seat);
    standbys[i].setFollows(value.view.standbys[i].policy == StandbyPolicy::kInput
                               ? schema::StandbyWay::INPUT
                               : schema::StandbyWay::KV);
  }
}
InstallView read(schema::View::Reader from) {
  View view{.deployment = name_from(from.getDeployment()),
            .number = {from.getNumber()},
            .batcher = {from.getBatcher()},
            .batcher_address = bytes_from(from.getBatcherAddress()),
            .seats = {},
            .standbys = {}};
  // One too many is enough for check_control() to refuse; a hostile count takes no memory.
  const auto seats = from.getSeats();
  for (uint32_t i = 0; i < std::min<uint32_t>(seats.size(), kStagesMax + 1); ++i)
    view.seats.push_back(read(seats[i]));
  const auto standbys = from.getStandbys();
  for (uint32_t i = 0; i < std::min<uint32_t>(standbys.size(), kStagesMax + 1); ++i)
    view.standbys.push_back({standbys[i].getStage(), read(standbys[i].getSeat()),
                             standbys[i].getFollows() == schema::StandbyWay::INPUT
                                 ? StandbyPolicy::kInput
                                 : StandbyPolicy::kKv});
  return {.view = std::move(view)};
}

void write(schema::ControlMessage::Body::Builder body, const ViewInstalled& value) {
  auto to = body.initViewInstalled();
  to.setDeployment(value.deployment);
  to.setView(value.view.value);
  auto held = to.initHeld(static_cast<uint32_t>(value.held.size()));
  for (uint32_t i = 0; i < held.size(); ++i) {
    held[i].setStage(value.held[i].stage);
    const auto& known = value.held[i].sequences;
    auto sequences = held[i].initSequences(static_cast<uint32_t>(known.size()));
    for (uint32_t j = 0; j < sequences.size(); ++j) {
      sequences[j].setSequence(known[j].sequence.value);
      sequences[j].setLength(known[j].length);
      sequences[j].setJournalFirst(known[j].journal_first);
      sequences[j].setJournalEnd(known[j].journal_end);
    }
  }
}
StageHeld read(schema::StageHeld::Reader from) {
  StageHeld held{.stage = from.getStage(), .sequences = {}};
  const auto sequences = from.getSequences();
  const size_t count = std::min<size_t>(sequences.size(), kSequencesHeldMax + 1);
  held.sequences.reserve(count);
  for (uint32_t i = 0; i < count; ++i)
    held.sequences.push_back({{sequences[i].getSequence()},
                              sequences[i].getLength(),
                              sequences[i].getJournalFirst(),
                              sequences[i].getJournalEnd()});
  return held;
}
ViewInstalled read(schema::ViewInstalled::Reader from) {
  ViewInstalled installed{
      .deployment = name_from(from.getDeployment()), .view = {from.getView()}, .held = {}};
  const auto held = from.getHeld();
  for (uint32_t i = 0; i < std::min<uint32_t>(held.size(), kStagesMax + 1); ++i)
    installed.held.push_back(read(held[i]));
  return installed;
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
  to.setJournalBytes(value.journal_bytes);
  to.setStandby(value.standby.value);
  to.setStandbyBehind(value.standby_behind);
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
          .resident_bytes = from.getResidentBytes(),
          .journal_bytes = from.getJournalBytes(),
          .standby = {from.getStandby()},
          .standby_behind = from.getStandbyBehind()};
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

Result<SharedBuffer> encode_control(const ControlMessage& message) {
  const Result<void> checked = check_control(message.body);
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
        const Result<void> checked = check_control(body);
        if (!checked.ok())
          return Error{ErrorCode::kInvalidFrame, "control message: " + checked.error().message};
        return ControlMessage{
            .call = from.getCall(), .answer = from.getAnswer(), .body = std::move(body)};
      });
}

}  // namespace troupe

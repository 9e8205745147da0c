#include "actors/stage.h"

#include <signal.h>
#include <caf/send.hpp>

#include <chrono>
#include <fstream>
#include <stdexcept>

#include "actors/exceptions.h"
#include "actors/model_registry.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "models/transformer_stage.h"

namespace troupe {
namespace {

int64_t unix_now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Resident memory of this process in bytes; 0 if the kernel does not say.
uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return 0;
  return resident_pages * 4096;
}

Frame answer_to(const FrameHeader& input, FrameKind kind, Incarnation sender, Incarnation receiver,
                uint64_t sequence) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.view = input.view;
  frame.header.sender = sender;
  frame.header.receiver = receiver;
  frame.header.edge_sequence = sequence;
  frame.header.micro_batch = input.micro_batch;
  frame.header.sent_unix_us = unix_now_us();
  return frame;
}

}  // namespace

ProgramMaker transformer_programs() {
  return [](const StageSpec& spec, ModelPtr model) -> Result<std::unique_ptr<StageProgram>> {
    TROUPE_TRY(const KernelChoice kernels, parse_kernel_choice(spec.kernels));
    TROUPE_TRY(auto operators, make_operators({.kernels = kernels, .threads = spec.threads}));
    return make_transformer_stage({.file = model->file,
                                   .config = model->config,
                                   .layers = spec.layers,
                                   .kv_blocks = spec.kv_blocks,
                                   .rows_max = spec.rows_max,
                                   .operators = std::move(operators)});
  };
}

StageState::~StageState() {
  // The state goes before attached functors run (CAF 0.17), so the thread is joined here.
  compute = nullptr;
  if (options.link) caf::anon_send(options.link, UnbindReceiver{options.incarnation});
}

void StageState::start(OwedPromise<StageStarted> promise) {
  starting = std::move(promise);
  self->request(options.registry, caf::timespan{options.open_max},
                OpenModel{options.spec.model_path, options.spec.content_id})
      .then(
          [this](const OpenedModel& opened) {
            if (opened.error) return open_failed(*opened.error);
            compute->load([maker = options.programs, spec = options.spec, model = opened.model] {
              return maker(spec, model);
            });
          },
          [this](const caf::error& failure) {
            open_failed(Error{ErrorCode::kInternal, self->system().render(failure)});
          });
}

void StageState::open_failed(Error why) {
  starting.deliver(StageStarted{{}, std::move(why)});
  self->quit(caf::exit_reason::user_shutdown);
}

void StageState::loaded(const ProgramLoaded& loaded) {
  if (loaded.error) return open_failed(*loaded.error);
  memory = loaded.memory;
  log_info("stage", "{} stage {}: layers [{}, {}) ready, {} MiB weights, {} MiB KV",
           options.spec.deployment, options.spec.stage, options.spec.layers.first,
           options.spec.layers.last, memory.weight_bytes >> 20, memory.kv_bytes >> 20);
  self->send(options.link,
             BindReceiver{options.incarnation,
                          caf::actor_cast<FrameReceiver>(caf::strong_actor_ptr{self->ctrl()})});
  starting.deliver(StageStarted{StageReady{.deployment = options.spec.deployment,
                                           .stage = options.spec.stage,
                                           .layers = options.spec.layers,
                                           .incarnation = options.incarnation,
                                           .data_address = options.data_address,
                                           .process = options.process,
                                           .weight_bytes = memory.weight_bytes,
                                           .kv_bytes = memory.kv_bytes},
                                std::nullopt});
}

void StageState::arrived(const FramePtr& frame) {
  const FrameHeader& header = frame->header;
  const FenceVerdict verdict =
      fence->check(header.view, header.sender, header.receiver, header.edge_sequence);
  if (!usable(verdict)) {
    log_debug("stage", "fenced a frame of view {} from {}: {}", header.view.value,
              to_string(header.sender), to_string(verdict));
    return;
  }
  // tidy: allow(throw): a fault that tests ask for
  if (armed_fault == "throw") throw std::runtime_error("injected fault");
  if (armed_fault == "kill") ::raise(SIGKILL);
  if (header.sent_unix_us > 0)
    hops.record(
        std::chrono::microseconds{std::max<int64_t>(0, unix_now_us() - header.sent_unix_us)});
  const FrameKind expected = first() ? FrameKind::kTokens : FrameKind::kActivations;
  if (header.kind != expected) {
    refuse(header, Error{ErrorCode::kInvalidFrame, "a frame of the wrong kind for this stage"});
    return;
  }
  if (!compute->run(frame))
    refuse(header, Error{ErrorCode::kResourceExhausted, "too many frames wait at this stage"});
}

void StageState::computed(const StageComputed& result) {
  const FrameHeader& input = result.input->header;
  if (input.view != view.number) return;  // computed for a view that is gone
  if (result.error)
    refuse(input, *result.error);
  else if (last())
    send_sampled(*result.input, result.output);
  else
    send_next(*result.input, result.output);
}

void StageState::send_next(const Frame& input, const StageOutput& output) {
  const Seat& next = view.seats[options.spec.stage + 1];
  Frame frame = answer_to(input.header, FrameKind::kActivations, options.incarnation,
                          next.incarnation, next_edge_sequence++);
  frame.header.segments = input.header.segments;
  uint64_t rows = 0;
  for (FrameSegment& segment : frame.header.segments) {
    segment.tokens.clear();
    rows += segment.rows;
  }
  frame.header.released = input.header.released;
  if (rows > 0)
    frame.header.hidden = static_cast<uint32_t>(output.hidden.size() / sizeof(float) / rows);
  frame.payload = output.hidden;
  self->send(options.link, SendFrame{next.data_address, std::make_shared<Frame>(std::move(frame))});
}

void StageState::send_sampled(const Frame& input, const StageOutput& output) {
  Frame frame = answer_to(input.header, FrameKind::kSampled, options.incarnation, view.batcher,
                          next_batcher_sequence++);
  for (const SampledToken& sampled : output.sampled) {
    FrameSegment segment;
    segment.sequence = sampled.sequence;
    segment.position = sampled.position;
    segment.rows = 1;
    segment.tokens = {sampled.token};
    segment.logits_digest = sampled.logits_digest;
    frame.header.segments.push_back(std::move(segment));
  }
  self->send(options.link,
             SendFrame{view.batcher_address, std::make_shared<Frame>(std::move(frame))});
}

void StageState::refuse(const FrameHeader& input, const Error& why) {
  ++refused;
  log_warning("stage", "refused micro-batch {}: {}", input.micro_batch.value, to_string(why));
  if (view.number != input.view) return;
  Frame frame = answer_to(input, FrameKind::kRefused, options.incarnation, view.batcher,
                          next_batcher_sequence++);
  frame.header.refusal = why.message;
  frame.header.refusal_code = why.code;
  frame.header.refusing_stage = options.spec.stage;
  self->send(options.link,
             SendFrame{view.batcher_address, std::make_shared<Frame>(std::move(frame))});
}

ViewSet StageState::set_view(const View& next) {
  const uint32_t stage = options.spec.stage;
  if (stage >= next.seats.size() || next.seats[stage].incarnation != options.incarnation)
    return {next.number, Error{ErrorCode::kFenced, "the view names another life for this stage"}};
  const Incarnation sender = first() ? next.batcher : next.seats[stage - 1].incarnation;
  switch (fence->install(next.number, std::span(&sender, 1))) {
    case ViewFence::Installed::kOld:
      return {next.number,
              Error{ErrorCode::kFenced, fmt::format("view {} is installed, {} is older",
                                                    fence->view().value, next.number.value)}};
    case ViewFence::Installed::kRepeat:
      return {next.number, std::nullopt};
    case ViewFence::Installed::kInstalled:
      break;
  }
  view = next;
  next_edge_sequence = next_batcher_sequence = 1;
  compute->set_view(next.number);
  log_info("stage", "{} stage {}: view {} installed", options.spec.deployment, stage,
           next.number.value);
  return {next.number, std::nullopt};
}

StageFigures StageState::figures() const {
  const ComputeFigures& compute_figures = compute->figures();
  const auto alive = static_cast<uint64_t>((self->clock().now() - born).count());
  const uint64_t busy = compute_figures.busy_ns;
  return StageFigures{
      .deployment = options.spec.deployment,
      .stage = options.spec.stage,
      .incarnation = options.incarnation,
      .micro_batches = compute_figures.finished,
      .rows = compute_figures.rows,
      .busy_ns = busy,
      .idle_ns = alive > busy ? alive - busy : 0,
      .hop_p50_ns = static_cast<uint64_t>(hops.quantile(0.5).count()),
      .hop_p99_ns = static_cast<uint64_t>(hops.quantile(0.99).count()),
      .step_p50_ns = static_cast<uint64_t>(compute_figures.steps.quantile(0.5).count()),
      .step_p99_ns = static_cast<uint64_t>(compute_figures.steps.quantile(0.99).count()),
      .fenced_frames = fence->dropped(),
      .garbage_frames = refused,
      .weight_bytes = memory.weight_bytes,
      .kv_bytes = memory.kv_bytes,
      .resident_bytes = resident_bytes()};
}

StageActor::behavior_type stage_actor(StageActor::stateful_pointer<StageState> self,
                                      StageOptions options) {
  StageState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  state.fence = std::make_unique<ViewFence>(state.options.incarnation);
  state.born = self->clock().now();
  self->set_exception_handler(keep_text);
  const StageActor me = self;
  state.compute = state.options.compute(
      state.options.spec.stage,
      ComputeEvents{
          .loaded =
              [me](Result<StageMemory> memory) {
                caf::anon_send(me, memory.ok() ? ProgramLoaded{memory.value(), std::nullopt}
                                               : ProgramLoaded{{}, memory.error()});
              },
          .computed =
              [me](FramePtr input, Result<StageOutput> output) {
                caf::anon_send(
                    me, output.ok() ? StageComputed{std::move(input), output.value(), std::nullopt}
                                    : StageComputed{std::move(input), {}, output.error()});
              }});
  return {
      [&state](const StageStart&) -> caf::result<StageStarted> {
        auto promise = state.self->make_response_promise<StageStarted>();
        state.start(OwedPromise<StageStarted>{promise});
        return promise;
      },
      [&state](const FrameArrived& arrived) { state.arrived(arrived.frame); },
      [&state](const ProgramLoaded& loaded) { state.loaded(loaded); },
      [&state](const StageComputed& result) { state.computed(result); },
      [&state](const SetView& order) { return state.set_view(order.view); },
      [&state](const ArmFault& order) {
        state.armed_fault = order.fault;
        if (order.fault == "hang") state.compute->hang();
      },
      [&state](const GetStageFigures&) { return state.figures(); },
  };
}

}  // namespace troupe

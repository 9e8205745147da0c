#include "actors/stage.h"

#include <caf/send.hpp>

#include <fstream>
#include <stdexcept>

#include "actors/exceptions.h"
#include "actors/model_registry.h"
#include "base/digest.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "models/transformer_stage.h"

namespace troupe {
namespace {

constexpr Duration kStageTick = 250ms;

// Resident memory of this process in bytes; 0 if the kernel does not say.
uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return 0;
  return resident_pages * 4096;
}

// Names everything that fixes the bytes of the KV cache, and whose sequences they are.
uint64_t kept_key(const StageSpec& spec) {
  return digest64(as_byte_span(fmt::format("{} {} {} {} {}", spec.content_id, spec.layers.first,
                                           spec.layers.last, spec.kv_blocks, spec.batcher.value)));
}

}  // namespace

ProgramMaker transformer_programs(int memory) {
  return [memory](const StageSpec& spec, ModelPtr model) -> Result<std::unique_ptr<StageProgram>> {
    TROUPE_TRY(const KernelChoice kernels, parse_kernel_choice(spec.kernels));
    TROUPE_TRY(auto operators, make_operators({.kernels = kernels, .threads = spec.threads}));
    return make_transformer_stage({.file = model->file,
                                   .config = model->config,
                                   .layers = spec.layers,
                                   .kv_blocks = spec.kv_blocks,
                                   .rows_max = spec.rows_max,
                                   .kept = {.descriptor = memory, .key = kept_key(spec)},
                                   .operators = std::move(operators)});
  };
}

StageState::~StageState() {
  if (!port) return;
  options.router->unbind(options.incarnation);
  port->close();
}

void StageState::build() {
  const StageActor me = self;
  port = std::make_shared<StagePort>(StagePortOptions{
      .deployment = options.spec.deployment,
      .stage = options.spec.stage,
      .stages = options.spec.stages,
      .incarnation = options.incarnation,
      .batcher = options.spec.batcher,
      .router = options.router,
      .journal_bytes_max = options.spec.journal_bytes,
      .fail = [me](const std::string& why) { caf::anon_send(me, StageFailed{why}); }});
  auto compute = options.compute(options.spec.stage, port->events([me](Result<StageMemory> taken) {
    caf::anon_send(me, taken.ok() ? ProgramLoaded{taken.value(), std::nullopt}
                                  : ProgramLoaded{{}, taken.error()});
  }));
  computing = &compute->figures();
  port->attach(std::move(compute));
}

void StageState::start(OwedPromise<StageStarted> promise) {
  starting = std::move(promise);
  self->request(options.registry, caf::timespan{options.open_max},
                OpenModel{options.spec.model_path, options.spec.content_id})
      .then(
          [this](const OpenedModel& opened) {
            if (opened.error) return open_failed(*opened.error);
            port->load([maker = options.programs, spec = options.spec, model = opened.model] {
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
  options.router->bind(options.incarnation, port);
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

// Answers from the compute thread, when the micro-batches of older views are done.
void StageState::set_view(const View& next, OwedPromise<ViewSet> promise) {
  auto owed = std::make_shared<OwedPromise<ViewSet>>(std::move(promise));
  const StageActor me = self;
  port->set_view(next, [owed, me, number = next.number](Result<StageHeld> held) {
    ViewSet set{number, {}, std::nullopt};
    if (held.ok())
      set.held = std::move(held).value();
    else
      set.error = held.error();
    // The promise belongs to the actor's thread.
    caf::anon_send(me, ViewTaken{owed, std::move(set)});
  });
}

void StageState::arm(const std::string& fault) {
  const auto parsed = parse_fault(fault);
  if (parsed.ok())
    port->arm(parsed.value());
  else
    log_warning("stage", "{}", parsed.error().message);
}

StageFigures StageState::figures() const {
  const auto alive = static_cast<uint64_t>((self->clock().now() - born).count());
  const uint64_t busy = computing->busy_ns;
  StageFigures figures{
      .deployment = options.spec.deployment,
      .stage = options.spec.stage,
      .incarnation = options.incarnation,
      .micro_batches = computing->finished,
      .rows = computing->rows,
      .busy_ns = busy,
      .idle_ns = alive > busy ? alive - busy : 0,
      .step_p50_ns = static_cast<uint64_t>(computing->steps.quantile(0.5).count()),
      .step_p99_ns = static_cast<uint64_t>(computing->steps.quantile(0.99).count()),
      .weight_bytes = memory.weight_bytes,
      .kv_bytes = memory.kv_bytes,
      .resident_bytes = resident_bytes(),
      .standby = {}};
  port->report(figures);
  return figures;
}

StageActor::behavior_type stage_actor(StageActor::stateful_pointer<StageState> self,
                                      StageOptions options) {
  StageState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  state.born = self->clock().now();
  self->set_exception_handler(keep_text);
  state.build();
  self->delayed_send(self, kStageTick, Tick{});
  return {
      [&state](const StageStart&) -> caf::result<StageStarted> {
        auto promise = state.self->make_response_promise<StageStarted>();
        state.start(OwedPromise<StageStarted>{promise});
        return promise;
      },
      [&state](const ProgramLoaded& loaded) { state.loaded(loaded); },
      // tidy: allow(throw): its supervisor starts another life of it
      [](const StageFailed& failed) { throw std::runtime_error(failed.why); },
      [&state](const SetView& order) -> caf::result<ViewSet> {
        auto promise = state.self->make_response_promise<ViewSet>();
        state.set_view(order.view, OwedPromise<ViewSet>{promise});
        return promise;
      },
      [](const ViewTaken& taken) { taken.promise->deliver(taken.set); },
      [&state](const Tick&) {
        state.port->tick(state.self->clock().now());
        state.self->delayed_send(state.self, kStageTick, Tick{});
      },
      [&state](const ArmFault& order) { state.arm(order.fault); },
      [&state](const GetStageFigures&) { return state.figures(); },
  };
}

}  // namespace troupe

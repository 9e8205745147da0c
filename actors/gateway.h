// The gateway actor: between clients and the batcher. It makes request records, submits them, keeps
// each stream's pieces, and delivers them to whoever listens, from the cursor each listener asked
// for. A client that lost its connection comes back under the same id and gets exactly the rest.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "actors/logic/admission.h"
#include "actors/messages.h"
#include "actors/prompt_codec.h"

namespace troupe {

struct GatewayOptions {
  NodeId self;
  std::string deployment;
  LedgerActor ledger;
  AdmissionLimits limits;
  std::string profile;           // of the numbers; part of the record
  Duration listener_grace = 3s;  // a stream nobody listens to is cancelled after this
  Duration ended_kept = 60s;     // an ended stream can be read again for so long …
  size_t ended_max = 512;        // … if not too many ended since
  Duration tick = 100ms;
};

struct GatewayState {
  static inline const char* name = "gateway";

  struct Listener {
    std::shared_ptr<PieceSink> sink;
    uint64_t next = 0;  // index of the next piece it gets
  };
  struct Stream {
    RequestRecord record;
    std::vector<GeneratedPiece> pieces;
    std::optional<Detokenizer> detokenizer;
    std::optional<GenerateEnd> end;
    std::vector<Listener> listeners;
    Instant idle_since;  // nobody listens, or it ended
    bool submitted = false;
    size_t logged = 0;  // pieces the ledger was told of
  };

  GatewayActor::stateful_pointer<GatewayState> self = nullptr;
  GatewayOptions options;
  BatcherActor batcher;
  SchedulerActor scheduler;
  std::optional<PromptCodec> codec;
  std::map<RequestId, Stream> streams;
  Instant sweep_due;
  bool serving = false, stopping = false;
  std::string not_serving_why = "the model is being loaded";

  void generate(const GenerateOrder& order);
  void admit_and_record(const GenerateCall& call, const std::shared_ptr<PieceSink>& sink);
  void recorded(const RequestId& id, const RecordOutcome& outcome);
  void take_up(Stream& stream, std::span<const LoggedToken> logged);
  void submit(Stream& stream);
  void listen(Stream& stream, uint64_t after, std::shared_ptr<PieceSink> sink);
  void event(const BatchEvent& event);
  void show(Stream& stream, uint32_t token, uint64_t logits_digest);
  void deliver(Stream& stream);
  void log_tokens();
  void end_stream(Stream& stream, GenerateEnd end);
  void fail(const RequestId& id, const Error& why);
  void detach(const DetachSink& order);
  void cancel(const CancelOrder& order);
  void sweep();
  void stop();
};

// What the gateway needs that exists only after it: bound once.
struct GatewayBinding {
  BatcherActor batcher;
  SchedulerActor scheduler;
  std::shared_ptr<PromptCodec> codec;
};

GatewayActor::behavior_type gateway_actor(GatewayActor::stateful_pointer<GatewayState> self,
                                          GatewayOptions options);

// The RPC server's side: turns its calls into messages.
class GatewayPort final : public ClusterRequests {
 public:
  // `shutdown` is called for a client's shutdown call; empty refuses it.
  GatewayPort(GatewayActor gateway, std::function<Result<void>(ShutdownCall)> shutdown)
      : gateway_(std::move(gateway)), shutdown_(std::move(shutdown)) {}

  void generate(GenerateCall call, std::shared_ptr<PieceSink> sink) override;
  void detach(const RequestId& id, const PieceSink* sink) override;
  void cancel(const RequestId& id, Done done) override;
  void status(StatusAnswer answer) override;
  void inject_fault(FaultCall call, Done done) override;
  void drain(DrainCall call, Done done) override;
  void move(MoveCall call, Done done) override;
  void set_standby(StandbyCall call, Done done) override;
  void shutdown(ShutdownCall call, Done done) override;

 private:
  GatewayActor gateway_;
  std::function<Result<void>(ShutdownCall)> shutdown_;
};

}  // namespace troupe

// Every actor's interface and every message, in one file.
//
// All messages stay inside their process: between processes travel frames (transport/frame.h) and
// control messages (transport/control.h), which the peer actor translates; frames reach stages
// through a FrameRouter, past their actors. So the structs here need no serialisation, and CAF is
// told so (CAF_ALLOW_UNSAFE_MESSAGE_TYPE at the end): passing a buffer is passing a pointer.
//
//   RPC thread ──▶ gateway ──▶ batcher ──▶ (router, transport, router) ──▶ stage ──▶ … ──▶
//   batcher ──▶ gateway
//                     │            ▲                                             ▲
//                     ▼            │ StartView/StopView                          │ InstallView
//                  ledger ◀── scheduler ──▶ peer ──▶ (peer link) ──▶ peer ──▶ node ──▶ supervisor
//                  ──▶ stage
//                                  ▲                                                       │
//                                  └──────────── health monitor ◀── beats                  └──▶
//                                  stage process
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/dataplane/frame_router.h"
#include "actors/logic/batching.h"
#include "actors/owed_promise.h"
#include "actors/request_record.h"
#include "actors/rpc/requests.h"
#include "actors/rpc/status.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "base/view.h"
#include "models/stage_program.h"
#include "transport/control.h"
#include "transport/frame.h"
#include "transport/peer/peer_links.h"
#include "transport/transport.h"

namespace troupe {

struct Tick {};      // an actor's own timer
struct Shutdown {};  // end in order; the actor quits when it is done

// ------------------------------------------------------------ peer:
// control messages What a peer asked or told. `from` is its node id ("node-2", or
// "node-2/stage-1").
struct PeerSaid {
  NodeId from;
  Incarnation incarnation;
  ControlBody body;
};
struct PeerJoined {
  NodeId node;
  Incarnation incarnation;
  std::string address;  // where it listens, for people
  LinkId link;          // its beats carry this; 0 for ourselves
};
struct PeerLeft {
  NodeId node;
  Incarnation incarnation;
  Error why;
};
struct PeerAnswer {
  ControlBody body;  // ControlError if it failed
};
// Who hears of peers: the scheduler of nodes, the supervisor of its stage processes, the node actor
// of its head.
using PeerListener = caf::typed_actor<caf::reacts_to<PeerJoined>, caf::reacts_to<PeerLeft>,
                                      caf::replies_to<PeerSaid>::with<PeerAnswer>>;
struct BindPeerListeners {
  PeerListener nodes;     // of daemons that dial us (head only); may be null
  PeerListener children;  // of our stage processes; may be null
  PeerListener upstream;  // what our own head or daemon says; may be null
};
// Answered with the peer's answer; with ControlError kUnavailable at once if the link is or goes
// down, and with kDeadlineExceeded when the time is over. A call to our own node id goes to the
// `upstream` listener.
struct CallPeer {
  NodeId node;
  ControlBody body;
  Duration timeout;
};
struct TellPeer {  // no answer, no promise
  NodeId node;
  ControlBody body;
};
struct TellUpstream {  // to the head (or the daemon, in a stage process); kept until the link is
                       // up, bounded
  ControlBody body;
};
struct EvictPeer {
  NodeId node;
  Incarnation incarnation;
  std::string why;
};
struct LinkUp {  // from the peer links' thread
  LinkId link;
  PeerHello peer;
};
struct LinkSaid {
  LinkId link;
  ControlMessage message;
};
struct LinkDown {
  LinkId link;
  Error why;
};
using PeerActor =
    caf::typed_actor<caf::reacts_to<BindPeerListeners>, caf::replies_to<CallPeer>::with<PeerAnswer>,
                     caf::reacts_to<TellPeer>, caf::reacts_to<TellUpstream>,
                     caf::reacts_to<EvictPeer>, caf::reacts_to<LinkUp>, caf::reacts_to<LinkSaid>,
                     caf::reacts_to<LinkDown>, caf::reacts_to<Tick>>;

// ------------------------------------------------------------
// health monitor
struct BeatHeard {  // from the beat thread
  LinkId link;
  Beat beat;
  Instant heard;
};
struct PeerVerdict {
  NodeId node;
  Incarnation incarnation;
  enum class State : uint8_t { kAlive, kSuspect, kDead, kHung } state = State::kAlive;
  std::string why;
};
using VerdictListener = caf::typed_actor<caf::reacts_to<PeerVerdict>>;
struct WatchPeer {
  NodeId node;
  Incarnation incarnation;
  LinkId link;
  VerdictListener listener;  // told when the verdict changes
};
struct UnwatchPeer {
  NodeId node;
  Incarnation incarnation;
};
using HealthMonitor = caf::typed_actor<caf::reacts_to<WatchPeer>, caf::reacts_to<UnwatchPeer>,
                                       caf::reacts_to<BeatHeard>, caf::reacts_to<Tick>>;

// ------------------------------------------------------------
// model registry
struct LoadedModel;  // actors/model_registry.h: mapped file, configuration, content id
using ModelPtr = std::shared_ptr<const LoadedModel>;
struct OpenModel {
  std::string path;
  std::string content_id;  // empty: any
};
struct OpenedModel {
  ModelPtr model;              // null if
  std::optional<Error> error;  // … this says why
};
using ModelRegistry = caf::typed_actor<caf::replies_to<OpenModel>::with<OpenedModel>>;

// ------------------------------------------------------------
// stage
struct StageStart {};  // load; the answer comes when weights are in place
struct StageStarted {
  StageReady ready;
  std::optional<Error> error;
};
struct ProgramLoaded {  // from the compute thread
  StageMemory memory;
  std::optional<Error> error;
};
struct StageFailed {  // on its data path: it cannot go on
  std::string why;
};
struct SetView {
  View view;
};
struct ViewSet {
  ViewNumber view;
  StageHeld held;
  std::optional<Error> error;
};
struct ViewTaken {  // from the compute thread
  std::shared_ptr<OwedPromise<ViewSet>> promise;
  ViewSet set;
};
struct ArmFault {
  std::string fault;
};
struct GetStageFigures {};
using StageActor =
    caf::typed_actor<caf::replies_to<StageStart>::with<StageStarted>, caf::reacts_to<ProgramLoaded>,
                     caf::reacts_to<StageFailed>, caf::replies_to<SetView>::with<ViewSet>,
                     caf::reacts_to<ViewTaken>, caf::reacts_to<ArmFault>, caf::reacts_to<Tick>,
                     caf::replies_to<GetStageFigures>::with<StageFigures>>;

// ------------------------------------------------------------
// supervisor
struct HostStage {  // start it, or adopt the equal one that runs already
  StageSpec spec;
};
struct HostedStage {
  StageReady ready;
  std::optional<Error> error;
};
struct UnhostStage {
  std::string deployment;
  uint32_t stage = 0;
};
struct UnhostAll {};  // answered when no stage is left
struct StagesGone {};
struct TellStages {  // InstallView: for every hosted stage that the view names; InjectFault: for
                     // one of them
  ControlBody body;
};
struct ChildEnded {  // a stage process was reaped; `how` for people: "killed by signal 9"
  uint64_t process = 0;
  std::string how;
};
struct RestartChild {  // its back-off is over
  std::string deployment;
  uint32_t stage = 0;
  uint64_t life = 0;
};
using Supervisor =
    caf::typed_actor<caf::replies_to<HostStage>::with<HostedStage>, caf::reacts_to<UnhostStage>,
                     caf::replies_to<UnhostAll>::with<StagesGone>,
                     caf::replies_to<TellStages>::with<PeerAnswer>, caf::reacts_to<ChildEnded>,
                     caf::reacts_to<RestartChild>, caf::reacts_to<PeerVerdict>,
                     caf::reacts_to<PeerJoined>, caf::reacts_to<PeerLeft>,
                     caf::replies_to<PeerSaid>::with<PeerAnswer>, caf::reacts_to<Tick>>;

// ------------------------------------------------------------
// node
struct LeaveCluster {  // SIGTERM: tell the head, wait for the stages to be taken over, end them;
                       // then answer
  Duration deadline;
};
struct LeftCluster {};
using NodeActor =
    caf::typed_actor<caf::reacts_to<PeerJoined>, caf::reacts_to<PeerLeft>,
                     caf::replies_to<PeerSaid>::with<PeerAnswer>,
                     caf::replies_to<LeaveCluster>::with<LeftCluster>, caf::reacts_to<Tick>>;

// ------------------------------------------------------------
// ledger
struct CreateRecord {
  RequestRecord record;
};
struct RecordOutcome {
  bool created = false;  // false: `record` is the one that was there
  RequestRecord record;
  std::optional<Error> error;
  std::vector<LoggedToken> logged;  // of the record that was there: its first tokens, perhaps none
};
struct LogTokens {
  std::vector<TokenRun> runs;
};
struct FinishRecord {
  RequestId id;
  std::string finish;
};
struct SwapView {  // installs view.number if the newest is view.number - 1
  View view;
};
struct GetView {
  std::string deployment;
};
struct ViewOutcome {
  bool committed = false;
  ViewNumber newest;
  std::optional<View> view;  // GetView: the newest, if there is one
  std::optional<Error> error;
};
using LedgerActor =
    caf::typed_actor<caf::replies_to<CreateRecord>::with<RecordOutcome>, caf::reacts_to<LogTokens>,
                     caf::reacts_to<FinishRecord>, caf::replies_to<SwapView>::with<ViewOutcome>,
                     caf::replies_to<GetView>::with<ViewOutcome>>;

// ------------------------------------------------------------
// batcher
struct BatchEvents {
  std::vector<BatchEvent> events;
};
using BatchListener = caf::typed_actor<caf::reacts_to<BatchEvents>>;
struct Submit {
  BatchRequest request;
};
struct SubmitOutcome {
  std::optional<Error> error;
};
struct CancelRequest {
  RequestId id;
};
struct StartView {
  View view;
  std::vector<StageHeld> held;  // what its stages hold
};
struct StopView {
  std::string why;
  std::optional<uint32_t> crashed;  // the stage that ended by itself
};
struct GetBatchingFigures {};
// Lives whose results turned out wrong, or are in doubt.
struct ResultsWrong {
  std::vector<WrongResult> wrong;
};
using ResultsWatcher = caf::typed_actor<caf::reacts_to<ResultsWrong>>;
struct WatchResults {
  ResultsWatcher watcher;
};
using BatcherActor =
    caf::typed_actor<caf::replies_to<Submit>::with<SubmitOutcome>, caf::reacts_to<CancelRequest>,
                     caf::reacts_to<StartView>, caf::reacts_to<StopView>, caf::reacts_to<Tick>,
                     caf::reacts_to<WatchResults>, caf::reacts_to<ResultsWrong>,
                     caf::replies_to<GetBatchingFigures>::with<BatchingFigures>>;

// ------------------------------------------------------------
// scheduler
struct GetClusterStatus {};
struct FaultOrder {
  FaultCall fault;
};
struct FaultOutcome {
  std::optional<Error> error;
};
// What an operator wants of the cluster's placement; answered when it has begun.
using OperatorCall = std::variant<DrainCall, MoveCall, StandbyCall>;
struct OperatorOrder {
  OperatorCall call;
};
struct OperatorOutcome {
  std::optional<Error> error;
};
using SchedulerActor =
    caf::typed_actor<caf::reacts_to<PeerJoined>, caf::reacts_to<PeerLeft>,
                     caf::replies_to<PeerSaid>::with<PeerAnswer>, caf::reacts_to<PeerVerdict>,
                     caf::reacts_to<Tick>, caf::reacts_to<ResultsWrong>,
                     caf::replies_to<GetClusterStatus>::with<ClusterStatus>,
                     caf::replies_to<FaultOrder>::with<FaultOutcome>,
                     caf::replies_to<OperatorOrder>::with<OperatorOutcome>>;

// ------------------------------------------------------------
// gateway
struct GenerateOrder {
  GenerateCall call;
  std::shared_ptr<PieceSink> sink;
};
struct DetachSink {
  RequestId id;
  const PieceSink* sink = nullptr;  // only compared
};
struct CancelOrder {
  RequestId id;
  Done done;
};
struct StatusOrder {
  StatusAnswer done;
};
struct InjectOrder {
  FaultCall fault;
  Done done;
};
struct OperatorRequest {
  OperatorCall call;
  Done done;
};
struct ServingState {  // from the scheduler: may requests be taken?
  bool serving = false;
  std::string why;
};
struct GatewayBinding;  // actors/gateway.h: what exists only after it
using GatewayActor =
    caf::typed_actor<caf::reacts_to<GatewayBinding>, caf::reacts_to<GenerateOrder>,
                     caf::reacts_to<DetachSink>, caf::reacts_to<CancelOrder>,
                     caf::reacts_to<StatusOrder>, caf::reacts_to<InjectOrder>,
                     caf::reacts_to<OperatorRequest>, caf::reacts_to<BatchEvents>,
                     caf::reacts_to<ServingState>, caf::reacts_to<Shutdown>, caf::reacts_to<Tick>>;
using ServingListener = caf::typed_actor<caf::reacts_to<ServingState>>;

}  // namespace troupe

#define TROUPE_LOCAL_MESSAGE(type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::type)
TROUPE_LOCAL_MESSAGE(Tick)
TROUPE_LOCAL_MESSAGE(ResultsWrong)
TROUPE_LOCAL_MESSAGE(WatchResults)
TROUPE_LOCAL_MESSAGE(Shutdown)
TROUPE_LOCAL_MESSAGE(PeerSaid)
TROUPE_LOCAL_MESSAGE(PeerJoined)
TROUPE_LOCAL_MESSAGE(PeerLeft)
TROUPE_LOCAL_MESSAGE(PeerAnswer)
TROUPE_LOCAL_MESSAGE(BindPeerListeners)
TROUPE_LOCAL_MESSAGE(CallPeer)
TROUPE_LOCAL_MESSAGE(TellPeer)
TROUPE_LOCAL_MESSAGE(TellUpstream)
TROUPE_LOCAL_MESSAGE(EvictPeer)
TROUPE_LOCAL_MESSAGE(LinkUp)
TROUPE_LOCAL_MESSAGE(LinkSaid)
TROUPE_LOCAL_MESSAGE(LinkDown)
TROUPE_LOCAL_MESSAGE(BeatHeard)
TROUPE_LOCAL_MESSAGE(PeerVerdict)
TROUPE_LOCAL_MESSAGE(WatchPeer)
TROUPE_LOCAL_MESSAGE(UnwatchPeer)
TROUPE_LOCAL_MESSAGE(OpenModel)
TROUPE_LOCAL_MESSAGE(OpenedModel)
TROUPE_LOCAL_MESSAGE(StageStart)
TROUPE_LOCAL_MESSAGE(StageStarted)
TROUPE_LOCAL_MESSAGE(ProgramLoaded)
TROUPE_LOCAL_MESSAGE(StageFailed)
TROUPE_LOCAL_MESSAGE(ViewTaken)
TROUPE_LOCAL_MESSAGE(SetView)
TROUPE_LOCAL_MESSAGE(ViewSet)
TROUPE_LOCAL_MESSAGE(ArmFault)
TROUPE_LOCAL_MESSAGE(GetStageFigures)
TROUPE_LOCAL_MESSAGE(StageFigures)
TROUPE_LOCAL_MESSAGE(HostStage)
TROUPE_LOCAL_MESSAGE(HostedStage)
TROUPE_LOCAL_MESSAGE(UnhostStage)
TROUPE_LOCAL_MESSAGE(UnhostAll)
TROUPE_LOCAL_MESSAGE(StagesGone)
TROUPE_LOCAL_MESSAGE(TellStages)
TROUPE_LOCAL_MESSAGE(ChildEnded)
TROUPE_LOCAL_MESSAGE(RestartChild)
TROUPE_LOCAL_MESSAGE(LeaveCluster)
TROUPE_LOCAL_MESSAGE(LeftCluster)
TROUPE_LOCAL_MESSAGE(CreateRecord)
TROUPE_LOCAL_MESSAGE(RecordOutcome)
TROUPE_LOCAL_MESSAGE(LogTokens)
TROUPE_LOCAL_MESSAGE(FinishRecord)
TROUPE_LOCAL_MESSAGE(SwapView)
TROUPE_LOCAL_MESSAGE(GetView)
TROUPE_LOCAL_MESSAGE(ViewOutcome)
TROUPE_LOCAL_MESSAGE(BatchEvents)
TROUPE_LOCAL_MESSAGE(Submit)
TROUPE_LOCAL_MESSAGE(SubmitOutcome)
TROUPE_LOCAL_MESSAGE(CancelRequest)
TROUPE_LOCAL_MESSAGE(StartView)
TROUPE_LOCAL_MESSAGE(StopView)
TROUPE_LOCAL_MESSAGE(GetBatchingFigures)
TROUPE_LOCAL_MESSAGE(BatchingFigures)
TROUPE_LOCAL_MESSAGE(GetClusterStatus)
TROUPE_LOCAL_MESSAGE(ClusterStatus)
TROUPE_LOCAL_MESSAGE(FaultOrder)
TROUPE_LOCAL_MESSAGE(FaultOutcome)
TROUPE_LOCAL_MESSAGE(OperatorOrder)
TROUPE_LOCAL_MESSAGE(OperatorOutcome)
TROUPE_LOCAL_MESSAGE(GenerateOrder)
TROUPE_LOCAL_MESSAGE(DetachSink)
TROUPE_LOCAL_MESSAGE(CancelOrder)
TROUPE_LOCAL_MESSAGE(StatusOrder)
TROUPE_LOCAL_MESSAGE(InjectOrder)
TROUPE_LOCAL_MESSAGE(OperatorRequest)
TROUPE_LOCAL_MESSAGE(ServingState)
TROUPE_LOCAL_MESSAGE(GatewayBinding)
#undef TROUPE_LOCAL_MESSAGE

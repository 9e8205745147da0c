// The seam between the client RPC server (one KJ thread) and the actors: plain values and
// callbacks, no KJ and no CAF, so that each side compiles, and is tested, without the other.
//
// Flow: the server checks a client's call, makes a GenerateCall of it and hands it to
// ClusterRequests together with a PieceSink. The actors call the sink from any thread; the sink
// queues and never blocks. A sink gets pieces with strictly growing indexes and then exactly one
// end(); what comes after its end, or after detach() returned, is ignored, so late calls are
// harmless.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/rpc/status.h"
#include "base/chat.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/sampling.h"
#include "base/time.h"
#include "base/view.h"

namespace troupe {

// A checked request (actors/rpc/validate.h says what that means). Exactly one of prompt, messages
// and prompt_tokens is not empty.
struct GenerateCall {
  // Idempotency key; never empty here: the server makes one for a client that gave none.
  RequestId id{};
  std::string model{};                    // deployment name; empty: the only one there is
  std::string prompt{};                   // raw completion: tokenised as it stands
  std::vector<ChatMessage> messages{};    // chat: goes through the model's chat template
  std::vector<uint32_t> prompt_tokens{};  // already tokenised
  uint32_t max_tokens = 0;                // at least 1
  SamplingParameters sampling{};
  bool ignore_end = false;  // go on past the model's end-of-text token (benchmarks)
  uint64_t after = 0;       // cursor: deliver only pieces with index >= after
};

// One generated token. Index 0 is the first generated token of the request; a piece of a given
// request and index is the same bytes however often and by whichever gateway it is sent.
struct GeneratedPiece {
  uint64_t index = 0;
  uint32_t token = 0;
  std::string text{};          // complete UTF-8; empty in the middle of a character
  uint64_t logits_digest = 0;  // of the logits it was drawn from
};

struct GenerateEnd {
  FinishReason reason = FinishReason::kFailed;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;  // of the whole request, also those before the cursor
  std::string text{};             // what the detokeniser still held at the end
  // Set exactly if reason is kFailed. kUnavailable invites the client to ask again under the same
  // id.
  std::optional<Error> error{};
};

// Where a request's tokens go. Called from any thread, one caller at a time; never blocks.
class PieceSink {
 public:
  PieceSink() = default;
  PieceSink(const PieceSink&) = delete;
  PieceSink& operator=(const PieceSink&) = delete;
  virtual ~PieceSink() = default;
  virtual void piece(GeneratedPiece piece) = 0;
  virtual void end(GenerateEnd end) = 0;
};

// Makes something break on purpose, for tests and demonstrations; refused unless the daemon allows
// it.
enum class FaultKind : uint8_t {
  kThrow,  // the stage actor throws while handling its next message
  kKill,   // the stage's process ends as by kill -9
  kHang,   // the stage stops making progress, but its beats go on
};

inline const char* to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kThrow:
      return "throw";
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kHang:
      return "hang";
  }
  return "unknown";
}

struct FaultCall {
  std::string model{};  // deployment name; empty: the only one there is
  uint32_t stage = 0;
  FaultKind kind = FaultKind::kThrow;
  std::string text{};  // "kill@computed+3" (actors/dataplane/fault_points.h); empty: as `kind` says
};
inline constexpr size_t kFaultTextMax = 64;  // bytes

// Standbys follow the stages from now on, or not.
struct StandbyCall {
  std::string model{};  // deployment name; empty: the only one there is
  StandbyPolicy policy = StandbyPolicy::kNone;
};

// A node takes no new stages and those it has move away, planned; or it is taken back.
struct DrainCall {
  NodeId node{};
  bool drained = true;
};

// One stage goes to that node, planned: it serves where it is until its successor is ready.
struct MoveCall {
  std::string model{};  // deployment name; empty: the only one there is
  uint32_t stage = 0;
  NodeId node{};
};

struct ShutdownCall {
  bool whole_cluster = false;  // else only the daemon that was asked
  Duration drain_max{};        // running requests get this long to finish; then they are cut
};

using StatusAnswer = std::function<void(Result<ClusterStatus>)>;
using Done = std::function<void(Result<void>)>;

// Implemented by the gateway actor's shell. Every method is called on the RPC server's thread and
// must not block; answers may be called from any thread, at once or later, once each. They stay
// callable after the server stopped (they then do nothing), so an implementation may keep them as
// long as it likes. The implementation must outlive the RpcServer.
class ClusterRequests {
 public:
  ClusterRequests() = default;
  ClusterRequests(const ClusterRequests&) = delete;
  ClusterRequests& operator=(const ClusterRequests&) = delete;
  virtual ~ClusterRequests() = default;

  // Starts the request, or joins it if one of this id is running or finished: then delivers its
  // pieces from call.after on. An id that was used for a different request ends the sink with
  // kConflict.
  virtual void generate(GenerateCall call, std::shared_ptr<PieceSink> sink) = 0;

  // The client went away or dropped its stream: forget this sink. Whether the request goes on is
  // the implementation's decision (somebody else may listen, or the client may resume within a
  // grace period). Not called for a sink that got its end. Unknown ids and sinks are normal (they
  // race with the end).
  virtual void detach(const RequestId& id, const PieceSink* sink) = 0;

  // Ends the request with kCancelled for every sink. kNotFound if no such request is running.
  virtual void cancel(const RequestId& id, Done done) = 0;

  virtual void status(StatusAnswer answer) = 0;
  virtual void inject_fault(FaultCall call, Done done) = 0;
  // Both answer when the order is accepted; the status shows how far it is.
  virtual void drain(DrainCall call, Done done) = 0;
  virtual void move(MoveCall call, Done done) = 0;
  virtual void set_standby(StandbyCall call, Done done) = 0;
  // Answers as soon as the shutdown is accepted, before it is carried out.
  virtual void shutdown(ShutdownCall call, Done done) = 0;
};

}  // namespace troupe

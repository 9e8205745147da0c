// The C++ client library: generate text on a cluster, with a promise the network does not give.
//
// A generate call survives its connection. The client knows how far it got; when the connection or
// the daemon behind it is lost it connects again, to the next address if there are several, repeats
// the request under the same id with the index of the first token it lacks, and the caller gets
// exactly the rest, each token once.
//
//   TROUPE_TRY(auto client, Client::connect({"127.0.0.1:7421"}));
//   auto outcome = client->generate({.prompt = "Once upon a time", .max_tokens = 64},
//                                   [](const GeneratedPiece& piece) { print(piece.text); return
//                                   true; });
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/rpc/requests.h"
#include "base/result.h"
#include "base/time.h"

namespace troupe {

struct ClientOptions {
  std::string token{};                 // what the daemon asks for; usually empty on loopback
  std::string name = "troupe-client";  // for the daemon's logs
  Duration connect_max = 5s;           // one try at one address, login included
  Duration answer_max = 60s;           // for everything but generate, tries again included
  // A generate call is given up when it has been cut off, or the cluster has been saying "not now",
  // this long.
  Duration resume_max = 60s;
  Duration backoff_min = 20ms;  // pause before the first repetition; doubles up to backoff_max
  Duration backoff_max = 1s;
  Duration ping_interval = 2s;  // a connection is asked this often whether it is there,
  Duration ping_max = 5s;       // and is given up if it does not answer for this long
};

// As GenerateCall, but the id may be empty: then one is made. `after` is for callers that resume on
// their own.
using GenerateRequest = GenerateCall;

// Called on the thread that called generate(). False cancels the request.
using OnPiece = std::function<bool(const GeneratedPiece&)>;

struct GenerateOutcome {
  RequestId id{};
  FinishReason reason = FinishReason::kStop;  // never kFailed: that is an Error
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;  // of the whole request
  std::string text{};             // of every piece that was delivered, and the tail
  std::string tail{};             // what came after the last piece: the rest of a cut character
  uint32_t resumptions = 0;       // how often the request had to be repeated
};

class Client {
 public:
  // Connects and logs in, to the first address that answers; the others are for later. Addresses
  // are host:port. kUnavailable: none answers. kInvalidArgument: a malformed address, a refused
  // token, an old protocol.
  static Result<std::unique_ptr<Client>> connect(const std::vector<std::string>& addresses,
                                                 const ClientOptions& options = {});
  // Calls that are in progress in other threads end with kCancelled; the caller sees to it that
  // they have returned before it is done with the object.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Every method blocks, and may be called from any thread, also at the same time as others.

  // Ends when the request does. Errors: kInvalidArgument (the message says what is allowed),
  // kConflict (the id was used for another request), kResourceExhausted, kNotFound (no such model),
  // kUnavailable (nothing heard for resume_max), and what else the cluster says.
  Result<GenerateOutcome> generate(const GenerateRequest& request, const OnPiece& on_piece = {});

  // Ends a request of this or another client; its generate() returns kCancelled as reason.
  // kNotFound: no such request is running.
  Result<void> cancel(const RequestId& id);

  Result<ClusterStatus> status();
  // Both return when the cluster has begun; status() shows how far it is. Errors: kNotFound (no
  // such node or stage), and for a move all of Replica::on_move (actors/logic/recovery.h): it is
  // not repeated when its answer is lost, status() tells then.
  Result<void> drain(const DrainCall& call);
  Result<void> move(const MoveCall& call);
  Result<void> set_standby(const StandbyCall& call);
  // Errors: kInvalidArgument (it is not allowed there, or there is no such fault: the message says
  // which there are), kNotFound (no such model or stage). Not repeated when its answer is lost.
  Result<void> inject_fault(const FaultCall& call);
  // `fault` as actors/dataplane/fault_points.h takes it, "kill@computed+3".
  Result<void> inject_fault(const std::string& model, uint32_t stage, const std::string& fault);
  Result<void> shutdown(const ShutdownCall& call);

 private:
  struct Parts;
  explicit Client(std::shared_ptr<Parts> parts);

  // Shared with the calls in progress, which may outlive the client for a moment.
  const std::shared_ptr<Parts> parts_;
};

}  // namespace troupe

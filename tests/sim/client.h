// A client of a simulated cluster: one request and its cursor. It comes back under the same id when
// its stream breaks, may leave for a while or cancel, and checks everything it hears: each token is
// the one an undisturbed run gives (I1), indexes go up by one from its cursor (I9), and nothing
// comes before the request's record is in the ledger (I4).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace troupe::sim {

struct ClientPlan {
  GenerateCall call;
  Duration start{};
  std::vector<uint32_t> expected;           // tokens
  std::vector<std::vector<uint64_t>> rows;  // [stage][position] of an undisturbed run
};

class Client final : public std::enable_shared_from_this<Client> {
 public:
  Client(Cluster& cluster, ClientPlan plan) : cluster_(cluster), plan_(std::move(plan)) {}

  void begin();  // at the plan's time
  // Leaves the stream and takes it up again after so long.
  void leave(Duration away);
  void cancel();
  bool done() const { return done_; }
  bool running() const { return tries_ > 0 && !done_; }
  // Failed for good, and why; a request that takes a stage with it again and again may be.
  const std::string& quarantined() const { return quarantined_; }
  std::string state() const;  // for people: how far it came
  uint64_t cursor() const { return cursor_; }
  uint32_t tries() const { return tries_; }
  const std::string& last_error() const { return last_error_; }

 private:
  class Sink;
  void connect();
  void retry(Duration delay);
  void watch_head();
  void heard(const GeneratedPiece& piece);
  void ended(const GenerateEnd& end);
  void broken(const std::string& promise);

  Cluster& cluster_;
  const ClientPlan plan_;
  std::shared_ptr<Sink> sink_;  // null: not connected
  uint64_t head_life_ = 0;      // that it is connected to
  uint64_t cursor_ = 0;         // index of the next token it wants
  uint32_t tries_ = 0;
  bool cancelled_ = false, done_ = false;
  std::string last_error_, quarantined_;
};

}  // namespace troupe::sim

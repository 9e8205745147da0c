#include "tests/sim/client.h"

#include <fmt/format.h>

namespace troupe::sim {
namespace {

constexpr Duration kRetryAfter = 100ms;
constexpr Duration kHeadWatch = 20ms;  // how soon a broken connection shows

}  // namespace

// One connection. What comes after the client left it counts for nothing.
class Client::Sink final : public PieceSink {
 public:
  explicit Sink(std::weak_ptr<Client> client) : client_(std::move(client)) {}
  void piece(GeneratedPiece piece) override {
    if (const auto client = current()) client->heard(piece);
  }
  void end(GenerateEnd end) override {
    if (const auto client = current()) client->ended(end);
  }

 private:
  std::shared_ptr<Client> current() const {
    auto client = client_.lock();
    if (!client || client->sink_.get() != this ||
        client->head_life_ != client->cluster_.head_life())
      return nullptr;
    return client;
  }
  const std::weak_ptr<Client> client_;
};

void Client::begin() {
  for (uint32_t stage = 0; stage < plan_.rows.size(); ++stage)
    for (uint32_t position = 0; position < plan_.rows[stage].size(); ++position)
      cluster_.witness()->expect_row(stage, position, plan_.rows[stage][position]);
  cluster_.after(plan_.start, [me = shared_from_this()] {
    me->connect();
    me->watch_head();
  });
}

// A connection to a head that died is broken.
void Client::watch_head() {
  if (done_) return;
  if (sink_ && head_life_ != cluster_.head_life()) {
    sink_ = nullptr;
    retry(kRetryAfter);
  }
  cluster_.after(kHeadWatch, [me = shared_from_this()] { me->watch_head(); });
}

void Client::connect() {
  if (done_ || sink_) return;
  ++tries_;
  GenerateCall call = plan_.call;
  call.after = cursor_;
  head_life_ = cluster_.head_life();
  sink_ = std::make_shared<Sink>(weak_from_this());
  if (head_life_ != 0 && cluster_.generate(std::move(call), sink_)) return;
  sink_ = nullptr;
  retry(kRetryAfter);
}

void Client::retry(Duration delay) {
  cluster_.after(delay, [me = shared_from_this()] { me->connect(); });
}

void Client::leave(Duration away) {
  if (done_ || !sink_) return;
  cluster_.detach(plan_.call.id, sink_.get());
  sink_ = nullptr;
  retry(away);
}

// And goes away: whether the cluster hears of it is not waited for.
void Client::cancel() {
  if (done_ || tries_ == 0) return;
  cluster_.cancel(plan_.call.id);
  cancelled_ = true;
  if (!sink_) done_ = true;
}

void Client::broken(const std::string& promise) {
  cluster_.witness()->broken(plan_.call.id + ": " + promise);
}

void Client::heard(const GeneratedPiece& piece) {
  if (!cluster_.witness()->has_record(plan_.call.id))
    broken("I4: shown before its record was in the ledger");
  if (piece.index != cursor_)
    return broken(fmt::format("I9: index {} where {} was due", piece.index, cursor_));
  if (cursor_ >= plan_.expected.size())
    return broken(fmt::format("a token more than {}", plan_.expected.size()));
  if (piece.token != plan_.expected[cursor_])
    return broken(fmt::format("I1: token {} is {}, expected {}", cursor_, piece.token,
                              plan_.expected[cursor_]));
  ++cursor_;
}

void Client::ended(const GenerateEnd& end) {
  sink_ = nullptr;
  if (end.reason == FinishReason::kFailed && end.error) {
    last_error_ = end.error->message;
    const ErrorCode code = end.error->code;
    if (code == ErrorCode::kUnavailable || code == ErrorCode::kResourceExhausted) {
      if (cancelled_)
        done_ = true;
      else
        retry(kRetryAfter);
      return;
    }
    if (last_error_.starts_with("quarantined"))
      quarantined_ = last_error_;
    else
      broken("failed: " + last_error_);
  } else if (end.reason == FinishReason::kCancelled) {
    if (!cancelled_) broken("cancelled by nobody");
  } else if (end.reason != FinishReason::kLength || cursor_ != plan_.expected.size()) {
    broken(fmt::format("ended ({}) after {} of {} tokens", to_string(end.reason), cursor_,
                       plan_.expected.size()));
  }
  done_ = true;
}

std::string Client::state() const {
  return fmt::format("{}: {} of {} tokens after {} tries{}{}", plan_.call.id, cursor_,
                     plan_.expected.size(), tries_, cancelled_ ? ", cancelled" : "",
                     last_error_.empty() ? "" : ", last: " + last_error_);
}

}  // namespace troupe::sim

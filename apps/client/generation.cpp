#include "apps/client/generation.h"

#include <fmt/format.h>
#include <kj/debug.h>

#include <algorithm>

#include "actors/rpc/wire.h"

namespace troupe::rpc {
namespace {

// After a cancel, for the cluster's last word on the request.
constexpr Duration kLastWordMax = 2s;

GenerateEnd cancelled_end() {
  GenerateEnd end;
  end.reason = FinishReason::kCancelled;
  return end;
}

}  // namespace

// Receives the pushes of one attempt. The daemon may hold it longer than the attempt lasts.
class Generation::Sink final : public schema::TokenSink::Server {
 public:
  explicit Sink(std::shared_ptr<Attachment> attachment) : attachment_(std::move(attachment)) {}

  kj::Promise<void> push(PushContext context) override {
    context.allowCancellation();
    if (attachment_->generation == nullptr) return kj::READY_NOW;  // late, and asked for elsewhere
    return attachment_->generation->receive(context.getParams().getPieces());
  }

 private:
  const std::shared_ptr<Attachment> attachment_;
};

Generation::Generation(Connector& connector, kj::Timer& timer, const ClientOptions& options,
                       GenerateCall call, std::shared_ptr<HandoffWriter> handoff,
                       std::function<void()> over)
    : connector_(connector),
      timer_(timer),
      options_(options),
      call_(std::move(call)),
      handoff_(std::move(handoff)),
      over_(std::move(over)),
      cut_off_since_(timer.now()),
      attempt_began_(timer.now()),
      backoff_(options.backoff_min),
      attachment_(std::make_shared<Attachment>()),
      running_(nullptr),
      cancelling_(nullptr) {
  running_ = run().eagerlyEvaluate([this](kj::Exception&& e) { finish(error_from(e)); });
}

Generation::~Generation() noexcept {
  attachment_->generation = nullptr;
}

kj::Promise<void> Generation::run() {
  return connector_.link()
      .then([this](Result<std::shared_ptr<Link>> link) -> kj::Promise<Result<GenerateEnd>> {
        attempt_began_ = timer_.now();
        if (!link.ok()) return Result<GenerateEnd>(link.error());
        return ask(std::move(link).value());
      })
      .then([this](Result<GenerateEnd> result) { return judge(std::move(result)); });
}

kj::Promise<Result<GenerateEnd>> Generation::ask(std::shared_ptr<Link> link) {
  attachment_ = std::make_shared<Attachment>(Attachment{this});
  auto request = link->session().generateRequest();
  write(call_, request.initRequest());
  request.setSink(kj::heap<Sink>(attachment_));
  auto answered = request.send().then(
      [](auto&& answer) -> Result<GenerateEnd> {
        GenerateEnd end = read(answer.getEnd());
        if (end.error) return *end.error;
        return end;
      },
      [link](kj::Exception&& e) -> Result<GenerateEnd> {
        if (e.getType() == kj::Exception::Type::DISCONNECTED) link->give_up();
        return error_from(e);
      });
  auto lost = link->lost().attach(kj::cp(link)).then([]() -> Result<GenerateEnd> {
    return Error{ErrorCode::kUnavailable, "the connection was lost"};
  });
  return answered.exclusiveJoin(kj::mv(lost)).attach(kj::defer([attachment = attachment_] {
    attachment->generation = nullptr;
  }));
}

// Pieces come in order and each once; what was already delivered before a resumption is skipped all
// the same.
kj::Promise<void> Generation::receive(capnp::List<schema::Piece>::Reader pieces) {
  std::vector<GeneratedPiece> fresh;
  for (const auto from : pieces) {
    if (from.getIndex() < call_.after) continue;
    KJ_REQUIRE(from.getIndex() == call_.after, "a token is missing before this one",
               from.getIndex(), call_.after);
    fresh.push_back(read(from));
    ++call_.after;
  }
  if (fresh.empty()) return kj::READY_NOW;
  cut_off_ = false;
  backoff_ = options_.backoff_min;
  if (cancelled_ || (*handoff_)->offer(std::move(fresh))) return kj::READY_NOW;
  auto pair = kj::newPromiseAndFulfiller<void>();
  room_ = kj::mv(pair.fulfiller);
  return kj::mv(pair.promise);
}

void Generation::drained() {
  KJ_IF_MAYBE (room, room_) {
    (*room)->fulfill();
    room_ = nullptr;
  }
}

kj::Promise<void> Generation::judge(Result<GenerateEnd> result) {
  if (result.ok() || result.error().code != ErrorCode::kUnavailable) {
    finish(std::move(result));
    return kj::READY_NOW;
  }
  if (cancelled_) return kj::READY_NOW;  // the cancelling flow has the last word
  if (cancel_expected_) {
    finish(cancelled_end());
    return kj::READY_NOW;
  }
  // An attempt that lasted longer than a dead connection can stay unnoticed was in touch with the
  // cluster.
  const auto now = timer_.now();
  const bool was_in_touch =
      now - attempt_began_ > to_kj(options_.ping_interval + options_.ping_max);
  if (!cut_off_ || was_in_touch) {
    cut_off_ = true;
    cut_off_since_ = now;
  }
  if (now - cut_off_since_ + to_kj(backoff_) > to_kj(options_.resume_max)) {
    finish(with_context(result.error(), fmt::format("given up after {} s at token {}",
                                                    to_seconds(options_.resume_max), call_.after)));
    return kj::READY_NOW;
  }
  const Duration pause = backoff_;
  backoff_ = std::min(backoff_ * 2, options_.backoff_max);
  ++resumptions_;
  return timer_.afterDelay(to_kj(pause)).then([this] { return run(); });
}

void Generation::cancel() {
  if (cancelled_ || finished_) return;
  cancelled_ = true;
  drained();
  cancelling_ = connector_.link()
                    .then([this](Result<std::shared_ptr<Link>> link) -> kj::Promise<void> {
                      if (!link.ok()) return kj::READY_NOW;
                      auto request = link.value()->session().cancelRequest();
                      request.setId(kj::StringPtr(call_.id.c_str(), call_.id.size()));
                      return request.send().ignoreResult().attach(kj::cp(link.value()));
                    })
                    .catch_([](kj::Exception&&) {})
                    .then([this] { return timer_.afterDelay(to_kj(kLastWordMax)); })
                    .exclusiveJoin(timer_.afterDelay(to_kj(options_.connect_max + kLastWordMax)))
                    .then([this] { finish(cancelled_end()); })
                    .eagerlyEvaluate([this](kj::Exception&& e) { finish(error_from(e)); });
}

void Generation::finish(Result<GenerateEnd> end) {
  if (std::exchange(finished_, true)) return;
  (*handoff_)->finish({std::move(end), resumptions_});
  over_();
}

}  // namespace troupe::rpc

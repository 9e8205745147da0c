#include "apps/client/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/rpc/wire.h"
#include "base/log.h"

namespace troupe::rpc {

Core::Core(const LoopContext& loop, std::vector<Endpoint> endpoints, const ClientOptions& options)
    : timer_(loop.timer),
      mailbox_(loop.mailbox),
      options_(options),
      connector_(loop, std::move(endpoints), options),
      tasks_(*this) {}

void Core::connect(std::shared_ptr<Pledge<void>> pledge) {
  tasks_.add(connector_.link().then([pledge](Result<std::shared_ptr<Link>> link) {
    if (link.ok())
      pledge->give({});
    else
      pledge->give(link.error());
  }));
}

template <class T>
kj::Promise<Core::Tried<T>> Core::try_once(const Send<T>& send, AskOptions how) {
  return connector_.link().then(
      [send, how](Result<std::shared_ptr<Link>> connected) -> kj::Promise<Tried<T>> {
        if (!connected.ok())
          return Tried<T>{connected.error(), connected.error().code == ErrorCode::kUnavailable};
        auto link = connected.value();
        auto answered = send(link->session())
                            .then(
                                [](Result<T> answer) {
                                  return Tried<T>{std::move(answer), false};
                                },
                                [link, how](kj::Exception&& e) {
                                  const bool lost =
                                      e.getType() == kj::Exception::Type::DISCONNECTED;
                                  if (lost) link->give_up();
                                  return Tried<T>{error_from(e), lost && how.repeatable};
                                });
        auto lost = link->lost().attach(kj::cp(link)).then([how] {
          return Tried<T>{
              Error{ErrorCode::kUnavailable, "the connection was lost before the answer came"},
              how.repeatable};
        });
        return answered.exclusiveJoin(kj::mv(lost));
      });
}

template <class T>
kj::Promise<Result<T>> Core::try_until(Send<T> send, AskOptions how, kj::TimePoint deadline,
                                       Duration pause) {
  auto tried = try_once<T>(send, how);
  return tried.then([this, send = std::move(send), how, deadline,
                     pause](Tried<T> outcome) mutable -> kj::Promise<Result<T>> {
    if (!outcome.again || timer_.now() + to_kj(pause) >= deadline) return kj::mv(outcome.answer);
    return timer_.afterDelay(to_kj(pause))
        .then([this, send = std::move(send), how, deadline, pause]() mutable {
          return try_until<T>(std::move(send), how, deadline,
                              std::min(pause * 2, options_.backoff_max));
        });
  });
}

template <class T>
void Core::ask(Send<T> send, AskOptions how, std::shared_ptr<Pledge<T>> pledge) {
  const auto deadline = timer_.now() + to_kj(options_.answer_max);
  auto late = timer_.atTime(deadline).then([limit = options_.answer_max]() -> Result<T> {
    return Error{ErrorCode::kDeadlineExceeded,
                 fmt::format("no answer within {} s", to_seconds(limit))};
  });
  tasks_.add(try_until<T>(std::move(send), how, deadline, options_.backoff_min)
                 .exclusiveJoin(kj::mv(late))
                 .then([pledge](Result<T> result) { pledge->give(std::move(result)); },
                       [pledge](kj::Exception&& e) { pledge->give(error_from(e)); }));
}

template void Core::ask<void>(Send<void>, AskOptions, std::shared_ptr<Pledge<void>>);
template void Core::ask<ClusterStatus>(Send<ClusterStatus>, AskOptions,
                                       std::shared_ptr<Pledge<ClusterStatus>>);

void Core::generate(uint64_t key, GenerateCall call, std::shared_ptr<HandoffWriter> handoff) {
  // A generation is over inside one of its own continuations: it is destroyed by a later job.
  auto over = [this, key] { mailbox_->post([this, key] { generations_.erase(key); }); };
  generations_.emplace(key,
                       std::make_unique<Generation>(connector_, timer_, options_, std::move(call),
                                                    std::move(handoff), std::move(over)));
}

void Core::drained(uint64_t key) {
  const auto found = generations_.find(key);
  if (found != generations_.end()) found->second->drained();
}

void Core::cancel_generation(uint64_t key) {
  const auto found = generations_.find(key);
  if (found != generations_.end()) found->second->cancel();
}

void Core::expect_cancellation(const RequestId& id) {
  for (auto& [key, generation] : generations_)
    if (generation->id() == id) generation->expect_cancellation();
}

void Core::taskFailed(kj::Exception&& exception) {
  log_error("client", "a task failed: {}", error_from(exception).message);
}

}  // namespace troupe::rpc

#include "actors/rpc/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include <kj/debug.h>

#include "base/log.h"

namespace troupe::rpc {
namespace {

std::string text_of(const kj::Exception& exception) {
  const auto description = exception.getDescription();
  return {description.begin(), description.size()};
}

// Runs the mailbox's jobs on the loop.
class MailboxPump {
 public:
  MailboxPump(kj::UnixEventPort& port, LoopMailbox& mailbox)
      : mailbox_(mailbox),
        observer_(port, mailbox.descriptor(), kj::UnixEventPort::FdObserver::OBSERVE_READ),
        running_(run().eagerlyEvaluate([](kj::Exception&& e) {
          log_error("rpc", "the event loop's mailbox stopped: {}", text_of(e));
        })) {}

 private:
  kj::Promise<void> run() {
    const auto jobs = mailbox_.take();
    for (const auto& job : jobs) {
      KJ_IF_MAYBE (exception, kj::runCatchingExceptions([&] { job(); })) {
        log_error("rpc", "a job on the event loop threw: {}", text_of(*exception));
      }
    }
    // After a busy round input and output get their turn before the next look.
    if (!jobs.empty()) return kj::evalLast([this] { return run(); });
    return observer_.whenBecomesReadable().then([this] { return run(); });
  }

  LoopMailbox& mailbox_;
  kj::UnixEventPort::FdObserver observer_;
  kj::Promise<void> running_;
};

}  // namespace

Result<std::shared_ptr<LoopMailbox>> LoopMailbox::open() {
  const int descriptor = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor < 0)
    return Error{ErrorCode::kIo, std::string("cannot open an eventfd: ") + std::strerror(errno)};
  return std::shared_ptr<LoopMailbox>(new LoopMailbox(descriptor));
}

LoopMailbox::~LoopMailbox() {
  ::close(descriptor_);
}

bool LoopMailbox::post(Job job) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  const bool wake = jobs_.empty();
  jobs_.push_back(std::move(job));
  if (wake) {
    // Fails only when the counter would overflow, and then the loop is awake.
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof one);
  }
  return true;
}

std::vector<LoopMailbox::Job> LoopMailbox::take() {
  // The counter is reset before the queue is emptied: a post in between only costs an empty look.
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(descriptor_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(jobs_, {});
}

void LoopMailbox::close() {
  std::vector<Job> dropped;  // destroyed after the lock is released: a job's parts may post
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(jobs_);
}

Result<std::unique_ptr<EventLoop>> EventLoop::start(const std::string& name, const Make& make) {
  TROUPE_TRY(auto mailbox, LoopMailbox::open());
  std::unique_ptr<EventLoop> loop(new EventLoop(name, std::move(mailbox)));
  std::promise<Result<void>> started;
  loop->thread_ = std::thread([&loop = *loop, &make, &started] {
    loop.run(make, [&started](Result<void> result) { started.set_value(std::move(result)); });
  });
  auto result = started.get_future().get();
  if (!result.ok()) return result.error();
  return loop;
}

void EventLoop::run(const Make& make, const std::function<void(Result<void>)>& started) {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  // Signals to the process are for its main thread.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  bool announced = false;
  const auto failure = kj::runCatchingExceptions([&] {
    auto io = kj::setupAsyncIo();
    MailboxPump pump(io.unixEventPort, *mailbox_);
    auto stop = kj::newPromiseAndFulfiller<void>();
    stop_requested_ = stop.fulfiller.get();
    auto body = make({*io.lowLevelProvider, io.provider->getTimer(), mailbox_});
    announced = true;
    started({});
    stop.promise.wait(io.waitScope);
    mailbox_->close();
    body.reset();
  });
  mailbox_->close();
  KJ_IF_MAYBE (exception, failure) {
    if (announced)
      log_error("rpc", "event loop {} ended: {}", name_, text_of(*exception));
    else
      started(Error{ErrorCode::kIo, "cannot start an event loop: " + text_of(*exception)});
  }
}

void EventLoop::stop() {
  mailbox_->post([this] { stop_requested_->fulfill(); });
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe::rpc

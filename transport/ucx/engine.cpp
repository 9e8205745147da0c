#include "transport/ucx/engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "base/digest.h"
#include "base/log.h"

namespace troupe::ucx {
namespace {

constexpr unsigned kProgressStepsMax =
    64;  // a round; an unbounded loop starves everything under a fast sender
constexpr size_t kCommandsMax = 64;  // a round
constexpr Duration kYieldFor = 50us;
// How long an orderly end may take before the endpoint is closed by force. More while connections
// are set up: UCX 1.13 aborts the *peer's* process (an assertion in its wire-up) if we close in the
// middle of that.
constexpr Duration kLinger = 100ms;
constexpr Duration kLingerUnwelcomed = 1s;
constexpr Duration kQuiet = 20ms;    // nothing happened for so long: no connection is being set up
constexpr Duration kForced = 500ms;  // for UCX to let go of what was closed by force

}  // namespace

std::shared_ptr<Outgoing> ConnectionTable::open(Address peer) {
  const std::lock_guard lock(mutex_);
  const ConnectionId id{++last_};
  auto connection = std::make_shared<Outgoing>(id, std::move(peer));
  open_.emplace(id, connection);
  return connection;
}

std::shared_ptr<Outgoing> ConnectionTable::find(ConnectionId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  return found == open_.end() ? nullptr : found->second;
}

std::shared_ptr<Outgoing> ConnectionTable::remove(ConnectionId id) {
  const std::lock_guard lock(mutex_);
  const auto node = open_.extract(id);
  return node.empty() ? nullptr : node.mapped();
}

Engine::Engine(Shared& shared, TransportEvents& events)
    : shared_(shared),
      events_(events),
      key_(shared.options.key),
      pool_(BufferPool::create(shared.options.pool_bytes_max)) {}

Engine::~Engine() = default;

Result<std::vector<std::byte>> Engine::start() {
  TROUPE_TRY(context_, Context::create());
  TROUPE_TRY(worker_, Worker::create(*context_, &Engine::receive, this));
  TROUPE_TRY(std::vector<std::byte> worker_address, worker_->address());
  address_ = encode_address({shared_.instance, std::move(worker_address)}, key_);
  if (address_.size() > kAddressMax)
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("UCX's worker address takes {} bytes, limit {}", address_.size(), kAddressMax)};
  return address_;
}

void Engine::run() {
  std::optional<Instant> idle_since;
  while (!stopping_) {
    if (round()) {
      idle_since.reset();
      continue;
    }
    const Instant now = steady_now();
    if (!idle_since) idle_since = now;
    // Yielding leaves the core to the peer, which may be about to answer; spinning without it is
    // slower than sleeping.
    if (now - *idle_since < kYieldFor) {
      sched_yield();
      continue;
    }
    sleep();
    idle_since.reset();
  }
  shut_down();
}

// One bounded turn of everything; true if there was anything to do.
bool Engine::round() {
  bool busy = worker_->progress(kProgressStepsMax);
  busy |= act_on_notes();
  busy |= act_on_commands();
  if (watch_.waiting > 0) retry_control();
  if (watch_.attention) look_after_endpoints();
  run_timers(steady_now());
  return busy;
}

void Engine::sleep() {
  if (!shared_.mailbox->fall_asleep()) return;
  worker_->wait(shared_.mailbox->wake_descriptor(), until_next_timer(steady_now()));
  shared_.mailbox->wake_up();
}

bool Engine::act_on_commands() {
  shared_.mailbox->take(commands_, kCommandsMax);
  for (Command& command : commands_) std::visit([this](auto& c) { act(c); }, command);
  const bool any = !commands_.empty();
  commands_.clear();
  return any;
}

Envelope Engine::envelope_to(const Address& peer, uint64_t connection, MessageKind kind) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.sender = shared_.instance;
  envelope.receiver = peer.instance;
  envelope.connection = connection;
  return envelope;
}

void Engine::garbage(Error what) {
  shared_.figures.frames_refused.fetch_add(1, std::memory_order_relaxed);
  if (!stopping_) events_.on_garbage(std::move(what));
}

// An operation ended or an endpoint failed: report losses, send what waited.
void Engine::look_after_endpoints() {
  watch_.attention = false;
  std::vector<std::shared_ptr<Outgoing>> lost;
  for (auto& [id, connection] : outgoing_) {
    if (connection->endpoint->failure())
      lost.push_back(connection);
    else if (!connection->backlog.empty())
      pump(*connection);
  }
  for (auto& connection : lost) lose(connection, *connection->endpoint->failure());
  std::vector<std::shared_ptr<Incoming>> gone;
  for (auto& [key, incoming] : incoming_)
    if (incoming->endpoint != nullptr && incoming->endpoint->failure()) gone.push_back(incoming);
  for (const auto& incoming : gone) {
    log_debug("ucx", "connection {} of peer {} is gone: {}", incoming->key.connection,
              to_hex(incoming->key.instance), incoming->endpoint->failure()->message);
    drop(incoming, Duration::zero());
  }
}

void Engine::retry_control() {
  for (auto& [id, connection] : outgoing_) connection->endpoint->retry_control();
  for (auto& [key, incoming] : incoming_)
    if (incoming->endpoint != nullptr) incoming->endpoint->retry_control();
  for (const Leaving& leaving : leaving_) leaving.endpoint->retry_control();
}

void Engine::let_go(std::shared_ptr<Endpoint> endpoint, Duration linger,
                    std::shared_ptr<Outgoing> outgoing) {
  if (endpoint != nullptr)
    leaving_.push_back({std::move(endpoint), steady_now() + linger, std::move(outgoing)});
}

void Engine::end_leaving(Instant now) {
  std::erase_if(leaving_, [now](Leaving& leaving) {
    Endpoint& endpoint = *leaving.endpoint;
    const bool set_up = leaving.outgoing == nullptr || leaving.outgoing->welcomed;
    const bool done = set_up && endpoint.idle();
    if (done || now >= leaving.deadline || endpoint.failure()) endpoint.close();
    return endpoint.closed();
  });
}

void Engine::run_timers(Instant now) {
  if (!leaving_.empty()) end_leaving(now);
  std::vector<std::shared_ptr<Outgoing>> late;
  for (auto& [id, connection] : outgoing_)
    if (!connection->welcomed && now >= connection->welcome_deadline) late.push_back(connection);
  for (auto& connection : late)
    lose(connection,
         {ErrorCode::kDeadlineExceeded, fmt::format("no answer to the hello within {:.1f} s",
                                                    to_seconds(shared_.options.connect_timeout))});
}

// Negative: there is none.
Duration Engine::until_next_timer(Instant now) const {
  std::optional<Instant> next;
  const auto consider = [&](Instant instant) { next = next ? std::min(*next, instant) : instant; };
  // UCX's events tell when there is room again; this is in case they do not.
  if (watch_.waiting > 0) consider(now + 1ms);
  for (const Leaving& leaving : leaving_)
    // Forced already: UCX's events tell of its end; look again soon all the same.
    consider(leaving.deadline > now ? leaving.deadline : now + 1ms);
  for (const auto& [id, connection] : outgoing_)
    if (!connection->welcomed) consider(connection->welcome_deadline);
  if (!next) return Duration{-1};
  return std::max(*next - now, Duration::zero());
}

void Engine::act(Connect& command) {
  auto& connection = command.connection;
  if (connection->ended.load()) return;
  auto endpoint = Endpoint::create(*worker_, connection->peer.worker, watch_);
  if (!endpoint.ok()) return lose(connection, endpoint.error());
  connection->endpoint = std::move(endpoint).value();
  connection->welcome_deadline = steady_now() + shared_.options.connect_timeout;
  outgoing_.emplace(connection->id, connection);
  Message hello{envelope_to(connection->peer, connection->id.value, MessageKind::kHello), {}, {}};
  hello.header = SharedBuffer::allocate(address_.size());
  std::copy(address_.begin(), address_.end(), hello.header.mutable_data());
  hello.envelope.header_bytes = static_cast<uint32_t>(address_.size());
  hello.envelope.number = digest64(hello.header.view(), key_);
  connection->endpoint->send_control(hello, key_);
  log_debug("ucx", "connection {} to peer {} is being set up", to_string(connection->id),
            to_hex(connection->peer.instance));
}

void Engine::act(Send& command) {
  if (!outgoing_.contains(command.connection->id)) return;  // lost meanwhile
  command.connection->backlog.push_back(std::move(command.message));
  pump(*command.connection);
}

void Engine::act(Close& command) {
  if (outgoing_.erase(command.connection->id) > 0) say_goodbye(command.connection);
}

void Engine::act(Spoil& command) {
  const std::shared_ptr<Outgoing>& connection = command.connection;
  if (outgoing_.erase(connection->id) > 0) say_goodbye(connection);
  lose(connection, std::move(command.why));
}

void Engine::say_goodbye(const std::shared_ptr<Outgoing>& connection) {
  log_debug("ucx", "connection {} to peer {} is not needed any more{}", to_string(connection->id),
            to_hex(connection->peer.instance), connection->welcomed ? "" : ", before it was up");
  connection->backlog.clear();
  connection->endpoint->send_control(
      {envelope_to(connection->peer, connection->id.value, MessageKind::kGoodbye), {}, {}}, key_);
  let_go(std::exchange(connection->endpoint, nullptr),
         connection->welcomed ? kLinger : kLingerUnwelcomed, connection);
}

void Engine::act(ReturnCredit& command) {
  const auto found = incoming_.find(command.key);
  if (found != incoming_.end()) return_credit(*found->second);
}

// Tells everyone and lets connections that are being set up finish that.
void Engine::say_farewell() {
  for (auto& [id, connection] : std::exchange(outgoing_, {})) {
    connection->end();
    say_goodbye(connection);
  }
  for (auto& [key, incoming] : std::exchange(incoming_, {})) {
    incoming->ended = true;
    if (incoming->endpoint == nullptr) continue;
    send_refusal(*incoming->endpoint, incoming->peer, key.connection,
                 "the peer's transport was destroyed");
    let_go(std::exchange(incoming->endpoint, nullptr), kLinger);
  }
  const Instant deadline = steady_now() + kLingerUnwelcomed;
  Instant busy_at = steady_now();
  for (Instant now = busy_at; now < deadline; now = steady_now()) {
    bool busy = worker_->progress(kProgressStepsMax);
    busy |= act_on_notes();
    retry_control();
    end_leaving(now);
    if (busy || !leaving_.empty()) busy_at = now;
    if (now - busy_at >= kQuiet) break;
    if (!busy) sched_yield();
  }
}

// What UCX does not let go of in time is leaked, never reused: it may still be written to.
void Engine::shut_down() {
  shared_.mailbox->close();
  say_farewell();
  const Instant deadline = steady_now() + kForced;
  while (true) {
    const Instant now = steady_now();
    for (Leaving& leaving : leaving_) leaving.deadline = now;
    end_leaving(now);
    if (leaving_.empty() && watch_.operations == 0 && receives_ == 0) break;
    if (now >= deadline) {
      log_warning("ucx", "{} endpoints, {} sends and {} receives did not end in time: leaked",
                  leaving_.size(), watch_.operations, receives_);
      new std::vector<Leaving>(std::move(leaving_));
      break;
    }
    if (!worker_->progress(kProgressStepsMax)) sched_yield();
  }
  control_.clear();
  broken_.clear();
  deliverable_.clear();
  worker_.reset();
  context_.reset();
}

}  // namespace troupe::ucx

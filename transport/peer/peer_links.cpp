// The links of a process: who listens, who dials, which connection is whose link. Everything here
// runs on the Asio thread, but what the public functions do before they post to it.

#include "transport/peer/peer_links.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "base/time_slice.h"
#include "transport/peer/address.h"
#include "transport/peer/beat_thread.h"
#include "transport/peer/connection.h"
#include "transport/peer/dialler.h"
#include "transport/peer/sockets.h"

namespace troupe {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr Duration kAcceptPause = 100ms;  // when the process has no descriptor left
constexpr Duration kDestructorFlush = 50ms;
constexpr int kAcceptsPerRound = 16;

Result<void> check_options(const PeerOptions& options) {
  const auto refuse = [](const char* what) { return Error{ErrorCode::kInvalidArgument, what}; };
  TROUPE_TRY_VOID(check_hello(options.hello));
  if (options.beat_interval < 1ms) return refuse("beat interval below 1 ms");
  if (options.hello_deadline <= 0ms || options.write_deadline <= 0ms || options.close_flush < 0ms)
    return refuse("a deadline is not positive");
  if (options.redial_min <= 0ms || options.redial_max < options.redial_min)
    return refuse("redial pauses are not 0 < min <= max");
  if (options.connections_max == 0 || options.unacknowledged_max == 0 ||
      options.unacknowledged_bytes_max < kControlMessageMax)
    return refuse("a limit of connections or unacknowledged messages is too small");
  return {};
}

}  // namespace

class PeerLinks::Impl final : public ConnectionOwner {
 public:
  Impl(PeerOptions options, PeerEvents& events);
  ~Impl() override;
  Result<void> start();

  Result<void> dial(const std::string& address);
  void stop_dialling(const std::string& address);
  Result<void> adopt(LinkSockets sockets);
  Result<void> send(LinkId link, const ControlMessage& message);
  void close(LinkId link, std::string why);

  std::string listen_address;

  // ConnectionOwner
  Result<void> greeted(const ConnectionPtr& connection) override;
  void beat_stream_came(const std::string& who, uint64_t token, OwnedFd socket) override;
  void came_up(const ConnectionPtr& connection) override;
  void received(const ConnectionPtr& connection, ControlMessage message) override;
  void ended(const ConnectionPtr& connection, const Error& why) override;
  void gone(const ConnectionPtr& connection) override;

 private:
  Result<void> listen();
  void accept_when_ready();
  void accept_some();
  ConnectionPtr add(StreamSocket socket, Connection::About about);
  void refused(const std::string& who, const Error& why);
  void dial_failed(const std::string& address, const Error& why);
  void open_beat_stream(const ConnectionPtr& connection);
  ConnectionPtr find(LinkId link);
  void stop();
  bool telling() const { return !stopping_.load(std::memory_order_relaxed); }

  const PeerOptions options_;
  PeerEvents& events_;
  std::atomic<bool> stopping_{false};
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer accept_pause_;
  bool accept_troubled_ = false, stopped_ = false;
  Dialler dialler_;
  std::map<std::string, std::string> dial_failures_;            // address -> what was told last
  std::set<ConnectionPtr> connections_;                         // all that are not closed
  std::unordered_map<uint64_t, ConnectionPtr> awaiting_beats_;  // by our token
  std::map<NodeId, LinkId> link_of_node_;
  uint64_t last_link_ = 0;
  std::mutex mutex_;                                 // of links_, which send() reads
  std::unordered_map<LinkId, ConnectionPtr> links_;  // that are up
  std::unique_ptr<BeatThread> beats_;
  std::thread thread_;
};

// ---- start and stop

PeerLinks::Impl::Impl(PeerOptions options, PeerEvents& events)
    : options_(std::move(options)),
      events_(events),
      io_(1),
      work_(boost::asio::make_work_guard(io_)),
      listener_(io_),
      accept_pause_(io_),
      dialler_(io_,
               {.connect_deadline = options_.hello_deadline,
                .redial_min = options_.redial_min,
                .redial_max = options_.redial_max,
                .seed = options_.hello.incarnation.value,
                .on_connected =
                    [this](const std::string& address, StreamSocket socket) {
                      tune_stream(socket.native_handle(), options_.write_deadline);
                      add(std::move(socket),
                          {.role = ConnectionRole::kDialled, .who = address, .dialled = address})
                          ->begin();
                    },
                .on_failed = [this](const std::string& address,
                                    const Error& why) { dial_failed(address, why); }}) {}

Result<void> PeerLinks::Impl::start() {
  TROUPE_TRY_VOID(check_options(options_));
  if (!options_.listen.empty()) TROUPE_TRY_VOID(listen());
  TROUPE_TRY(beats_, BeatThread::start(
                         {.interval = options_.beat_interval,
                          .progress = options_.progress,
                          .on_beat = [this](LinkId link, const Beat& beat,
                                            Instant heard) { events_.on_beat(link, beat, heard); },
                          .on_end =
                              [this](LinkId link, Error why) {
                                boost::asio::post(io_, [this, link, why = std::move(why)] {
                                  if (const ConnectionPtr connection = find(link))
                                    connection->beats_ended(why);
                                });
                              }}));
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "peer-links");
    (void)go_first();
    io_.run();
  });
  return {};
}

Result<void> PeerLinks::Impl::listen() {
  TROUPE_TRY(const tcp::endpoint endpoint, parse_loopback_address(options_.listen));
  TROUPE_TRY(OwnedFd socket, open_listener(endpoint));
  TROUPE_TRY(const tcp::endpoint bound, local_endpoint(socket.get()));
  error_code error;
  listener_.assign(socket.get(), error);  // NOLINT: the code is in `error`
  if (error) return system_error(error.value(), "cannot watch a socket");
  socket.release();
  listen_address = address_text(bound);
  accept_when_ready();
  return {};
}

PeerLinks::Impl::~Impl() {
  stopping_ = true;
  if (!thread_.joinable()) return;  // start() failed
  TROUPE_CHECK(std::this_thread::get_id() != thread_.get_id(),
               "peer links are not destroyed from one of their events");
  beats_->silence();
  boost::asio::post(io_, [this] { stop(); });
  thread_.join();
}

void PeerLinks::Impl::stop() {
  error_code ignored;
  listener_.close(ignored);  // NOLINT: nothing to do about it
  accept_pause_.cancel();
  dialler_.stop_all();
  awaiting_beats_.clear();
  const std::set<ConnectionPtr> all = connections_;
  for (const ConnectionPtr& connection : all)
    connection->close(Error{ErrorCode::kUnavailable, "the process ends"}, kDestructorFlush);
  work_.reset();
  stopped_ = true;
  if (connections_.empty()) io_.stop();
}

void PeerLinks::Impl::gone(const ConnectionPtr& connection) {
  connections_.erase(connection);
  // Attempts to connect may still be under way; nobody waits for them.
  if (stopped_ && connections_.empty()) io_.stop();
}

// ---- listening

void PeerLinks::Impl::accept_when_ready() {
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](error_code error) {
    if (!error) accept_some();
  });
}

void PeerLinks::Impl::accept_some() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    auto [accepted, failure] = accept_connection(listener_.native_handle());
    if (failure == EMFILE || failure == ENFILE || failure == ENOBUFS || failure == ENOMEM) {
      // The connection stays in the queue; it is taken when descriptors are back.
      if (!std::exchange(accept_troubled_, true))
        log_warning("peer", "{}; trying again every {:.0f} ms",
                    system_error(failure, "cannot accept on " + listen_address).message,
                    to_milliseconds(kAcceptPause));
      accept_pause_.expires_after(kAcceptPause);
      accept_pause_.async_wait([this](error_code error) {
        if (!error) accept_some();
      });
      return;
    }
    if (failure == EAGAIN) break;
    if (failure != 0) continue;  // that one connection was gone again
    accept_troubled_ = false;
    if (connections_.size() >= 2 * options_.connections_max) {
      refused(accepted.who, Error{ErrorCode::kResourceExhausted,
                                  fmt::format("{} connections, limit {}", connections_.size(),
                                              2 * options_.connections_max)});
      continue;
    }
    tune_stream(accepted.socket.get(), options_.write_deadline);
    Result<StreamSocket> socket = asio_socket(io_, std::move(accepted.socket));
    if (!socket.ok()) {
      refused(accepted.who, socket.error());
      continue;
    }
    add(std::move(socket).value(),
        {.role = ConnectionRole::kAccepted, .who = accepted.who, .dialled = {}})
        ->begin();
  }
  accept_when_ready();
}

ConnectionPtr PeerLinks::Impl::add(StreamSocket socket, Connection::About about) {
  auto connection =
      std::make_shared<Connection>(io_, std::move(socket), std::move(about), options_, *this);
  connections_.insert(connection);
  return connection;
}

void PeerLinks::Impl::refused(const std::string& who, const Error& why) {
  if (telling()) events_.on_refused(who, why);
}

void PeerLinks::Impl::dial_failed(const std::string& address, const Error& why) {
  if (why.code == ErrorCode::kCancelled) return;  // stop_dialling()
  std::string& told = dial_failures_[address];
  if (told == why.message) return;
  told = why.message;
  refused(address, why);
}

// ---- a connection's life

Result<void> PeerLinks::Impl::greeted(const ConnectionPtr& connection) {
  // A node that has a link may always replace it.
  size_t greeted_count = 0;
  for (const ConnectionPtr& other : connections_)
    greeted_count += other->greeted() && other->peer().node != connection->peer().node;
  if (greeted_count >= options_.connections_max)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} links, limit {}", greeted_count, options_.connections_max)};
  if (connection->about().role == ConnectionRole::kAccepted)
    awaiting_beats_[connection->token()] = connection;
  if (connection->about().role == ConnectionRole::kDialled) open_beat_stream(connection);
  return {};
}

// The dialled side waits for a beat stream that names its token.
void PeerLinks::Impl::open_beat_stream(const ConnectionPtr& connection) {
  const Result<tcp::endpoint> endpoint = parse_loopback_address(connection->about().dialled);
  TROUPE_CHECK(endpoint.ok(), "dial() parsed it");
  connect_stream(
      io_, endpoint.value(), options_.hello_deadline,
      [this, connection](Result<StreamSocket> connected) {
        if (!connection->waits_for_beats()) return;  // ended meanwhile
        const auto fail = [&connection](const Error& why) {
          connection->close(with_context(why, "beat stream"), 0ms);
        };
        if (!connected.ok()) return fail(connected.error());
        const Result<SharedBuffer> hello = encode_beat_hello(connection->peer_token());
        if (!hello.ok()) return fail(hello.error());
        const std::vector<std::byte> packet =
            whole_packet({.kind = PacketKind::kBeatHello}, hello.value().view());
        error_code error;
        // The first bytes of a stream: the kernel's buffer takes them all, or the stream is broken.
        const size_t sent =
            connected.value().send(boost::asio::buffer(packet.data(), packet.size()), 0, error);
        if (error || sent != packet.size())
          return fail(Error{ErrorCode::kUnavailable, "cannot say hello: " + error.message()});
        tune_stream(connected.value().native_handle(), options_.write_deadline);
        OwnedFd socket(connected.value().release(error));
        connection->join(std::move(socket));
      });
}

void PeerLinks::Impl::beat_stream_came(const std::string& who, uint64_t token, OwnedFd socket) {
  const auto found = awaiting_beats_.find(token);
  if (found == awaiting_beats_.end())
    return refused(who, Error{ErrorCode::kNotFound, "a beat stream for a link that is not there"});
  const ConnectionPtr connection = found->second;
  awaiting_beats_.erase(found);
  connection->join(std::move(socket));
}

void PeerLinks::Impl::came_up(const ConnectionPtr& connection) {
  const auto [found, first] = link_of_node_.try_emplace(connection->peer().node);
  if (const ConnectionPtr older = first ? nullptr : find(found->second)) {
    const bool same_life = older->peer().incarnation == connection->peer().incarnation;
    older->close(
        Error{ErrorCode::kConflict, fmt::format("a newer link of {} node \"{}\" took over",
                                                same_life ? "the same" : "a new incarnation of",
                                                connection->peer().node)},
        kDestructorFlush);
  }
  connection->link = LinkId{++last_link_};
  link_of_node_[connection->peer().node] = connection->link;
  {
    const std::lock_guard lock(mutex_);
    links_[connection->link] = connection;
  }
  dial_failures_.erase(connection->about().dialled);
  if (telling()) events_.on_up(connection->link, connection->peer());
  // Only now may beats be told. An event may have closed the link: closing is posted, so it is
  // still up here.
  beats_->add(connection->link, connection->take_beats());
}

void PeerLinks::Impl::received(const ConnectionPtr& connection, ControlMessage message) {
  if (telling()) events_.on_message(connection->link, std::move(message));
}

void PeerLinks::Impl::ended(const ConnectionPtr& connection, const Error& why) {
  awaiting_beats_.erase(connection->token());
  const Connection::About& about = connection->about();
  Duration up_for{};
  if (connection->link) {
    up_for = steady_now() - connection->up_since;
    {
      const std::lock_guard lock(mutex_);
      links_.erase(connection->link);
    }
    const auto found = link_of_node_.find(connection->peer().node);
    if (found != link_of_node_.end() && found->second == connection->link)
      link_of_node_.erase(found);
    connection->keep_beats(beats_->remove(connection->link));
    if (telling()) events_.on_down(connection->link, why);
  } else if (about.role == ConnectionRole::kDialled) {
    dial_failed(about.dialled, why);
  } else {
    refused(about.who, why);
  }
  if (about.role == ConnectionRole::kDialled && telling()) dialler_.lost(about.dialled, up_for);
}

ConnectionPtr PeerLinks::Impl::find(LinkId link) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : found->second;
}

// ---- what callers ask

Result<void> PeerLinks::Impl::dial(const std::string& address) {
  TROUPE_TRY(const tcp::endpoint endpoint, parse_loopback_address(address));
  if (endpoint.port() == 0)
    return Error{ErrorCode::kInvalidArgument, fmt::format("address \"{}\": port 0", address)};
  boost::asio::post(io_, [this, address, endpoint] {
    if (telling()) dialler_.dial(address, endpoint);
  });
  return {};
}

void PeerLinks::Impl::stop_dialling(const std::string& address) {
  boost::asio::post(io_, [this, address] {
    dialler_.stop(address);
    dial_failures_.erase(address);
    const std::set<ConnectionPtr> all = connections_;
    for (const ConnectionPtr& connection : all)
      if (connection->about().dialled == address && !connection->link)
        connection->close(Error{ErrorCode::kCancelled, "dialling was stopped"}, 0ms);
  });
}

Result<void> PeerLinks::Impl::adopt(LinkSockets sockets) {
  OwnedFd messages(sockets.messages);
  auto beats = std::make_shared<OwnedFd>(sockets.beats);
  TROUPE_TRY_VOID(prepare_adopted(messages.get()));
  TROUPE_TRY_VOID(prepare_adopted(beats->get()));
  std::string who = fmt::format("socket pair {}/{}", messages.get(), beats->get());
  TROUPE_TRY(StreamSocket socket, asio_socket(io_, std::move(messages)));
  auto shared = std::make_shared<StreamSocket>(std::move(socket));
  boost::asio::post(io_, [this, shared, beats, who = std::move(who)] {
    if (!telling()) return;
    const ConnectionPtr connection =
        add(std::move(*shared), {.role = ConnectionRole::kAdopted, .who = who, .dialled = {}});
    connection->join(std::move(*beats));
    connection->begin();
  });
  return {};
}

Result<void> PeerLinks::Impl::send(LinkId link, const ControlMessage& message) {
  const ConnectionPtr connection = find(link);
  if (!connection) return Error{ErrorCode::kUnavailable, "the link is down"};
  TROUPE_TRY(SharedBuffer bytes, encode_control(message));
  return connection->push(std::move(bytes));
}

void PeerLinks::Impl::close(LinkId link, std::string why) {
  boost::asio::post(io_, [this, link, why = std::move(why)] {
    if (const ConnectionPtr connection = find(link))
      connection->close(Error{ErrorCode::kCancelled, why}, options_.close_flush);
  });
}

// ---- the public face

Result<std::unique_ptr<PeerLinks>> PeerLinks::start(PeerOptions options, PeerEvents& events) {
  auto impl = std::make_unique<Impl>(std::move(options), events);
  TROUPE_TRY_VOID(impl->start());
  return std::unique_ptr<PeerLinks>(new PeerLinks(std::move(impl)));
}

PeerLinks::PeerLinks(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerLinks::~PeerLinks() = default;

std::string PeerLinks::listen_address() const {
  return impl_->listen_address;
}
Result<void> PeerLinks::dial(const std::string& address) {
  return impl_->dial(address);
}
void PeerLinks::stop_dialling(const std::string& address) {
  impl_->stop_dialling(address);
}
Result<void> PeerLinks::adopt(LinkSockets sockets) {
  return impl_->adopt(sockets);
}
Result<void> PeerLinks::send(LinkId link, ControlMessage message) {
  return impl_->send(link, message);
}
void PeerLinks::close(LinkId link, std::string why) {
  impl_->close(link, std::move(why));
}

}  // namespace troupe

#include "transport/peer/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "base/prng.h"

namespace troupe {
namespace {

using boost::system::error_code;

constexpr size_t kGatherPackets = 64;             // of one system call
constexpr size_t kGatherBytes = size_t{1} << 20;  // about; of one system call
constexpr Duration kRefusalFlush = 200ms;         // to say why a link is refused
constexpr Duration kEndGrace =
    100ms;  // between a sign that the peer is gone and the end of its messages

Error garbage(std::string what) {
  return Error{ErrorCode::kInvalidFrame, std::move(what)};
}

Error stream_error(error_code error) {
  if (error == boost::asio::error::eof)
    return Error{ErrorCode::kUnavailable, "the peer closed the connection"};
  if (error == boost::asio::error::timed_out)
    return Error{ErrorCode::kDeadlineExceeded, "the peer does not answer: " + error.message()};
  return Error{ErrorCode::kUnavailable, error.message()};
}

}  // namespace

Connection::Connection(boost::asio::io_context& io, StreamSocket socket, About about,
                       const PeerOptions& options, ConnectionOwner& owner)
    : socket_(std::move(socket)),
      about_(std::move(about)),
      options_(options),
      owner_(owner),
      token_(random_u64()),
      phase_timer_(io),
      write_timer_(io),
      sender_({.messages_max = options.unacknowledged_max,
               .bytes_max = options.unacknowledged_bytes_max}),
      io_(io) {}

void Connection::begin() {
  expect(options_.hello_deadline, Error{ErrorCode::kDeadlineExceeded,
                                        fmt::format("no complete hello within {:.0f} ms",
                                                    to_milliseconds(options_.hello_deadline))});
  // The accepted side speaks second: a stranger who connects learns nothing.
  if (about_.role != ConnectionRole::kAccepted) say_hello();
  read();
}

// ---- in

void Connection::read() {
  const std::span<std::byte> space = reader_.space();
  socket_.async_read_some(boost::asio::buffer(space.data(), space.size()),
                          [self = shared_from_this()](error_code error, size_t bytes) {
                            self->read_done(error, bytes);
                          });
}

void Connection::read_done(error_code error, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kClosing) {  // what still comes is not ours any more; its end is
    if (error) return close_now();
    return read();
  }
  if (error) return fail(stream_error(error), false);
  reader_.filled(bytes);
  take_packets();
  if (phase_ == Phase::kClosed) return;
  if (receiver_.acknowledgement_owed()) pump();
  read();
}

void Connection::take_packets() {
  while (phase_ != Phase::kClosing && phase_ != Phase::kClosed) {
    const Result<std::optional<Packet>> packet =
        reader_.next(phase_ == Phase::kUp ? kControlMessageMax : payload_max(PacketKind::kHello));
    // A stranger gets no answer; a peer that said a proper hello hears what was wrong.
    if (!packet.ok()) return fail(packet.error(), phase_ != Phase::kHello);
    if (!packet.value()) return;
    const Result<void> taken = take(*packet.value());
    if (!taken.ok()) return fail(taken.error(), phase_ != Phase::kHello || peer_.token != 0);
  }
}

Result<void> Connection::take(const Packet& packet) {
  const PacketKind kind = packet.header.kind;
  if (kind == PacketKind::kGoodbye) {
    TROUPE_TRY(Goodbye goodbye, decode_goodbye(packet.payload));
    goodbye.why.message = "the peer says: " + goodbye.why.message;
    fail(std::move(goodbye.why), false);
    return {};
  }
  if (phase_ == Phase::kHello) return take_first(packet);
  if (kind == PacketKind::kReady && !heard_ready_) {
    heard_ready_ = true;
    up_if_ready();
    return {};
  }
  if (kind == PacketKind::kMessage && phase_ == Phase::kUp) return take_message(packet);
  if (kind == PacketKind::kAcknowledge && phase_ == Phase::kUp)
    return take_acknowledgement(packet.header.acknowledged);
  return garbage(fmt::format("packet of kind {} out of turn", static_cast<int>(kind)));
}

Result<void> Connection::take_first(const Packet& packet) {
  if (packet.header.kind == PacketKind::kBeatHello && about_.role == ConnectionRole::kAccepted) {
    TROUPE_TRY(const uint64_t token, decode_beat_hello(packet.payload));
    if (reader_.unread() != 0) return garbage("a beat stream that does not wait for its link");
    become_beat_stream(token);
    return {};
  }
  if (packet.header.kind != PacketKind::kHello)
    return garbage(fmt::format("packet of kind {} where a hello was expected",
                               static_cast<int>(packet.header.kind)));
  TROUPE_TRY(peer_, decode_hello(packet.payload));
  TROUPE_TRY_VOID(check_compatible(options_.hello, peer_.peer));
  if (about_.role == ConnectionRole::kAccepted) say_hello();
  phase_ = Phase::kJoining;
  const Result<void> accepted = owner_.greeted(shared_from_this());
  if (!accepted.ok()) return accepted.error();
  if (joined_) say_ready();
  return {};
}

Result<void> Connection::take_message(const Packet& packet) {
  TROUPE_TRY_VOID(take_acknowledgement(packet.header.acknowledged));
  const ChannelVerdict verdict = receiver_.accept(packet.header.number);
  if (verdict == ChannelVerdict::kRepeat) return {};
  if (verdict == ChannelVerdict::kGap)
    return garbage(fmt::format("message {} after message {}", packet.header.number,
                               receiver_.acknowledgement()));
  TROUPE_TRY(ControlMessage message, decode_control(packet.payload));
  owner_.received(shared_from_this(), std::move(message));
  return {};
}

Result<void> Connection::take_acknowledgement(uint64_t number) {
  const std::lock_guard lock(mutex_);
  return sender_.acknowledge(number);
}

void Connection::become_beat_stream(uint64_t token) {
  phase_ = Phase::kClosed;
  phase_timer_.cancel();
  error_code error;
  // Cancels the pending operations and gives up the descriptor without closing it.
  OwnedFd socket(socket_.release(error));
  owner_.beat_stream_came(about_.who, token, std::move(socket));
  owner_.gone(shared_from_this());
}

// ---- coming up

void Connection::say(PacketKind kind, SharedBuffer payload) {
  const uint64_t digest = payload_digest(payload.view());
  sayings_.push_back({{.kind = kind}, std::move(payload), digest});
  pump();
}

void Connection::say_hello() {
  const Result<SharedBuffer> hello = encode_hello({options_.hello, token_});
  TROUPE_CHECK(hello.ok(), "start() checked the hello");
  say(PacketKind::kHello, hello.value());
}

void Connection::join(OwnedFd beats) {
  beats_ = std::move(beats);
  joined_ = true;
  if (phase_ == Phase::kJoining) say_ready();
}

void Connection::say_ready() {
  said_ready_ = true;
  say(PacketKind::kReady, SharedBuffer());
  up_if_ready();
}

void Connection::up_if_ready() {
  if (!said_ready_ || !heard_ready_ || phase_ != Phase::kJoining) return;
  phase_ = Phase::kUp;
  phase_timer_.expires_at(Instant::max());  // also disarms a hello deadline that is already due
  up_since = steady_now();
  {
    const std::lock_guard lock(mutex_);
    open_ = true;
  }
  owner_.came_up(shared_from_this());
}

void Connection::beats_ended(Error why) {
  if (phase_ == Phase::kUp) expect(kEndGrace, std::move(why));
}

// ---- out

Result<void> Connection::push(SharedBuffer message) {
  const uint64_t digest = payload_digest(message.view());
  const std::lock_guard lock(mutex_);
  if (!open_) return Error{ErrorCode::kUnavailable, "the link is down"};
  TROUPE_TRY(ChannelMessage numbered, sender_.push(std::move(message)));
  queue_.push_back({{.kind = PacketKind::kMessage, .number = numbered.number},
                    std::move(numbered.bytes),
                    digest});
  if (pump_posted_) return {};
  pump_posted_ = true;
  boost::asio::post(io_, [self = shared_from_this()] { self->pump(); });
  return {};
}

void Connection::pump() {
  if (write_under_way_ || phase_ == Phase::kClosed) return;
  if (write_failed_) {
    if (phase_ == Phase::kClosing) close_now();
    return;
  }
  gather();
  if (!writing_.empty()) {
    write();
  } else if (phase_ == Phase::kClosing) {
    flushed();
  }
}

// Sayings, then messages, then a goodbye; an acknowledgement rides on a message or goes alone.
void Connection::gather() {
  std::swap(writing_, sayings_);
  const bool may_send_messages =
      writing_.empty() && (phase_ == Phase::kUp || phase_ == Phase::kClosing);
  if (may_send_messages) {
    size_t bytes = 0;
    const std::lock_guard lock(mutex_);
    pump_posted_ = false;
    while (!queue_.empty() && writing_.size() < kGatherPackets && bytes < kGatherBytes) {
      bytes += queue_.front().payload.size();
      writing_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }
  if (may_send_messages && writing_.empty() && receiver_.acknowledgement_owed() && !goodbye_)
    writing_.push_back({{.kind = PacketKind::kAcknowledge}, SharedBuffer(), payload_digest({})});
  if (may_send_messages && writing_.empty() && goodbye_) {
    writing_.push_back(std::move(*goodbye_));
    goodbye_.reset();
  }
  for (Outgoing& packet : writing_) {
    packet.header.acknowledged = receiver_.acknowledgement();
    heads_.push_back(packet_header_bytes(packet.header, packet.payload.size(), packet.digest));
  }
  if (!writing_.empty() && may_send_messages) receiver_.acknowledgement_sent();
}

void Connection::write() {
  std::vector<boost::asio::const_buffer> buffers;
  size_t skip = written_;
  for (size_t i = 0; i < writing_.size(); ++i) {
    for (const ByteSpan part : {ByteSpan(heads_[i]), writing_[i].payload.view()}) {
      const size_t gone = std::min(skip, part.size());
      skip -= gone;
      if (part.size() > gone) buffers.emplace_back(part.data() + gone, part.size() - gone);
    }
  }
  write_under_way_ = true;
  write_timer_.expires_after(options_.write_deadline);
  write_timer_.async_wait([self = shared_from_this()](error_code cancelled) {
    if (cancelled || !self->write_under_way_) return;
    // A timer that was re-armed while this was queued has a later expiry.
    if (self->write_timer_.expiry() > std::chrono::steady_clock::now()) return;
    self->fail(Error{ErrorCode::kDeadlineExceeded,
                     fmt::format("the peer took no byte for {:.0f} ms",
                                 to_milliseconds(self->options_.write_deadline))},
               false);
  });
  socket_.async_write_some(buffers, [self = shared_from_this()](error_code error, size_t bytes) {
    self->write_done(error, bytes);
  });
}

void Connection::write_done(error_code error, size_t bytes) {
  write_under_way_ = false;
  write_timer_.cancel();
  if (phase_ == Phase::kClosed) return;
  if (error && phase_ == Phase::kClosing) return close_now();
  if (error) {
    // Why the peer left may still be in the receive buffer (a goodbye): reading finds it, or the
    // end.
    write_failed_ = true;
    return expect(kEndGrace, stream_error(error));
  }
  written_ += bytes;
  while (!writing_.empty() && written_ >= kPacketHeaderBytes + writing_.front().payload.size()) {
    written_ -= kPacketHeaderBytes + writing_.front().payload.size();
    writing_.pop_front();
    heads_.pop_front();
  }
  if (!writing_.empty()) return write();
  pump();
}

// ---- ending

void Connection::expect(Duration within, Error otherwise) {
  phase_timer_.expires_after(within);
  phase_timer_.async_wait(
      [self = shared_from_this(), otherwise = std::move(otherwise)](error_code cancelled) {
        if (cancelled || self->phase_timer_.expiry() > std::chrono::steady_clock::now()) return;
        if (self->phase_ == Phase::kClosing) return self->close_now();
        self->fail(otherwise, self->phase_ != Phase::kHello);
      });
}

void Connection::fail(Error why, bool say_why) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kClosed) return;
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    queue_.clear();
  }
  if (say_why) return start_closing(why, kRefusalFlush);
  phase_ = Phase::kClosing;
  owner_.ended(shared_from_this(), why);
  close_now();
}

void Connection::close(Error why, Duration flush) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kClosed) return;
  start_closing(why, flush);
}

void Connection::start_closing(const Error& why, Duration flush) {
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  phase_ = Phase::kClosing;
  const Result<SharedBuffer> goodbye = encode_goodbye(why);
  if (goodbye.ok())
    goodbye_ = Outgoing{
        {.kind = PacketKind::kGoodbye}, goodbye.value(), payload_digest(goodbye.value().view())};
  expect(flush, why);
  owner_.ended(shared_from_this(), why);
  pump();
}

// All is written. The peer closes when it has read the goodbye; closing first could make the kernel
// drop what the peer has not read yet.
void Connection::flushed() {
  if (shut_) return;
  shut_ = true;
  error_code error;
  socket_.shutdown(StreamSocket::shutdown_send, error);  // NOLINT: the code is in `error`
  if (error) close_now();
}

void Connection::close_now() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  phase_timer_.cancel();
  write_timer_.cancel();
  error_code error;
  socket_.close(error);  // NOLINT: nothing to do about it
  beats_.reset();
  owner_.gone(shared_from_this());
}

}  // namespace troupe

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "base/log.h"
#include "transport/ucx/engine.h"

namespace troupe::ucx {
namespace {

constexpr size_t kIncomingMax = 1024;  // connections
constexpr size_t kLeavingMax = 256;    // endpoints that only carry a refusal
constexpr size_t kControlMax = 4096;   // control messages a round
constexpr size_t kGarbageMax = 64;     // reports a round; more are only counted
constexpr Duration kLinger = 100ms;    // for what is still to be sent on a dropped connection

// Tells the engine through the mailbox, which outlives it.
class MailedCredit final : public CreditReturn {
 public:
  MailedCredit(std::shared_ptr<CommandBox> mailbox, PeerConnection key)
      : mailbox_(std::move(mailbox)), key_(key) {}

 private:
  void tell() override { mailbox_->push(ReturnCredit{key_}); }
  std::shared_ptr<CommandBox> mailbox_;
  PeerConnection key_;
};

// What a received frame holds: its memory, then the sender's credit.
struct Lease {
  std::shared_ptr<CreditReturn> credits;
  std::shared_ptr<std::byte> memory;
  ~Lease() {
    memory.reset();
    credits->release();
  }
};

}  // namespace

struct Engine::Receive {
  Engine* engine;
  std::shared_ptr<Incoming> incoming;
  Arrived frame;
};

ucs_status_t Engine::receive(void* argument, const void* header, size_t header_length, void* data,
                             size_t length, const ucp_am_recv_param_t* parameters) {
  const bool rendezvous = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return static_cast<Engine*>(argument)->on_message(
      {static_cast<const std::byte*>(header), header_length}, data, length, rendezvous);
}

// Inside UCX: notes only. UCS_OK without taking the data drops it, also a rendezvous.
ucs_status_t Engine::on_message(ByteSpan header, void* data, size_t length, bool rendezvous) {
  auto decoded = decode_envelope(header, length, key_);
  if (decoded.ok() && rendezvous && decoded.value().kind != MessageKind::kFrame)
    decoded = Error{ErrorCode::kInvalidFrame, "a control message came as a rendezvous"};
  if (!decoded.ok()) {
    if (garbage_.size() < kGarbageMax) garbage_.push_back(decoded.error());
    return UCS_OK;
  }
  const Envelope& envelope = decoded.value();
  if (stopping_ && envelope.kind == MessageKind::kFrame) return UCS_OK;
  if (envelope.kind == MessageKind::kFrame) return on_frame(envelope, data, length, rendezvous);
  if (control_.size() >= kControlMax) return UCS_OK;
  Control control{envelope, {}};
  const auto* bytes = static_cast<const std::byte*>(data);
  control.data.assign(bytes, bytes + length);
  const bool told = envelope.kind == MessageKind::kHello || envelope.kind == MessageKind::kRefuse;
  if (told && digest64(control.data, key_) != envelope.number) {
    if (garbage_.size() < kGarbageMax)
      garbage_.push_back({ErrorCode::kInvalidFrame, "digest of a control message does not match"});
    return UCS_OK;
  }
  if (envelope.kind == MessageKind::kHello) note_hello(control);
  control_.push_back(std::move(control));
  return UCS_OK;
}

// Frames may follow in the same breath, so the connection exists from here on; it is answered in
// the round.
void Engine::note_hello(const Control& control) {
  const PeerConnection key{control.envelope.sender, control.envelope.connection};
  if (control.envelope.receiver != shared_.instance || incoming_.size() >= kIncomingMax) return;
  if (stopping_) return;
  auto address = decode_address(control.data, key_);
  if (!address.ok() || address.value().instance != key.instance || incoming_.contains(key)) return;
  auto incoming = std::make_shared<Incoming>(key, std::move(address).value());
  incoming->credits = std::make_shared<MailedCredit>(shared_.mailbox, key);
  incoming_.emplace(key, std::move(incoming));
}

ucs_status_t Engine::on_frame(const Envelope& envelope, void* data, size_t length,
                              bool rendezvous) {
  const auto found = incoming_.find({envelope.sender, envelope.connection});
  // Of a connection that ended, or of another life of this process.
  if (envelope.receiver != shared_.instance || found == incoming_.end()) return UCS_OK;
  const std::shared_ptr<Incoming> incoming = found->second;
  if (incoming->ended) return UCS_OK;
  if (++incoming->started - incoming->credits->released() > kWindow) {
    note_broken(incoming,
                {ErrorCode::kInvalidFrame, fmt::format("more than {} unreleased frames", kWindow)});
    return UCS_OK;
  }
  if (envelope.credit_urgent) incoming->credits->hurry();
  Arrived frame{envelope, pool_->take(length)};
  if (frame.memory == nullptr) {
    note_broken(incoming, {ErrorCode::kResourceExhausted,
                           fmt::format("no memory for a frame of {} bytes", length)});
    return UCS_OK;
  }
  if (!rendezvous) {
    if (length > 0) std::memcpy(frame.memory.get(), data, length);
    arrived(incoming, std::move(frame), UCS_OK);
    return UCS_OK;
  }
  std::byte* memory = frame.memory.get();
  auto* receive = new Receive{this, incoming, std::move(frame)};
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  parameters.user_data = receive;
  parameters.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
    const std::unique_ptr<Receive> done(static_cast<Receive*>(user_data));
    ucp_request_free(request);
    --done->engine->receives_;
    done->engine->arrived(done->incoming, std::move(done->frame), status);
  };
  ++receives_;
  void* request = ucp_am_recv_data_nbx(worker_->handle(), data, memory, length, &parameters);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  const std::unique_ptr<Receive> done(receive);
  --receives_;
  arrived(incoming, std::move(done->frame), UCS_PTR_STATUS(request));
  return UCS_OK;
}

void Engine::arrived(const std::shared_ptr<Incoming>& incoming, Arrived frame,
                     ucs_status_t status) {
  if (incoming->ended) return;
  if (status != UCS_OK)
    return note_broken(incoming, ucx_error(ErrorCode::kUnavailable, "receiving a frame", status));
  const uint64_t number = frame.envelope.number;
  if (!incoming->frames.place(std::move(frame)))
    return note_broken(
        incoming, {ErrorCode::kInvalidFrame,
                   fmt::format("frame {} after {} were delivered, repeated or beyond {}", number,
                               incoming->frames.delivered(), kWindow)});
  deliverable_.push_back(incoming);
}

void Engine::note_broken(const std::shared_ptr<Incoming>& incoming, Error why) {
  if (std::exchange(incoming->ended, true)) return;
  broken_.emplace_back(incoming, std::move(why));
}

// What the callbacks of this round noted. Acting may not note anything new except broken
// connections.
bool Engine::act_on_notes() {
  const bool any =
      !control_.empty() || !deliverable_.empty() || !broken_.empty() || !garbage_.empty();
  if (!any) return false;
  for (Error& what : std::exchange(garbage_, {})) garbage(std::move(what));
  for (const Control& control : std::exchange(control_, {})) act_on_control(control);
  for (const auto& incoming : std::exchange(deliverable_, {})) deliver(incoming);
  for (auto& [incoming, why] : std::exchange(broken_, {})) {
    if (why.code == ErrorCode::kInvalidFrame) garbage(why);
    if (incoming->endpoint != nullptr)
      send_refusal(*incoming->endpoint, incoming->peer, incoming->key.connection, to_string(why));
    drop(incoming, kLinger);
  }
  return true;
}

SharedBuffer Engine::text_of(const std::string& text) const {
  SharedBuffer buffer = SharedBuffer::allocate(std::min(text.size(), kReasonMax));
  std::memcpy(buffer.mutable_data(), text.data(), buffer.size());
  return buffer;
}

void Engine::act_on_control(const Control& control) {
  if (control.envelope.kind == MessageKind::kHello) return answer_hello(control);
  if (control.envelope.receiver != shared_.instance) return;
  switch (control.envelope.kind) {
    case MessageKind::kWelcome:
      return on_welcome(control);
    case MessageKind::kRefuse:
      return on_refusal(control);
    case MessageKind::kCredit:
      return on_credit(control);
    case MessageKind::kGoodbye: {
      const auto found = incoming_.find({control.envelope.sender, control.envelope.connection});
      if (found == incoming_.end()) return;
      const std::shared_ptr<Incoming> incoming = found->second;
      deliver(incoming);
      drop(incoming, kLinger);
      return;
    }
    case MessageKind::kHello:
    case MessageKind::kFrame:
      return;
  }
}

void Engine::answer_hello(const Control& control) {
  auto address = decode_address(control.data, key_);
  if (!address.ok() || address.value().instance != control.envelope.sender)
    return garbage({ErrorCode::kInvalidFrame, "a hello without its sender's address"});
  const uint64_t connection = control.envelope.connection;
  if (control.envelope.receiver != shared_.instance)
    return refuse(address.value(), connection,
                  "the address is of an earlier process; this one is another instance");
  if (stopping_) return refuse(address.value(), connection, "the peer's transport was destroyed");
  const auto found = incoming_.find({control.envelope.sender, connection});
  if (found == incoming_.end())
    return refuse(address.value(), connection,
                  fmt::format("no room for a connection, limit {}", kIncomingMax));
  const std::shared_ptr<Incoming> incoming = found->second;
  if (incoming->endpoint != nullptr)
    return garbage({ErrorCode::kInvalidFrame, "a second hello on one connection"});
  auto endpoint = Endpoint::create(*worker_, incoming->peer.worker, watch_);
  if (!endpoint.ok()) {
    log_warning("ucx", "connecting back to peer {}: {}", to_hex(incoming->key.instance),
                endpoint.error().message);
    return drop(incoming, Duration::zero());
  }
  log_debug("ucx", "connection {} of peer {} is welcome", connection,
            to_hex(incoming->key.instance));
  incoming->endpoint = std::move(endpoint).value();
  incoming->endpoint->send_control(
      {envelope_to(incoming->peer, connection, MessageKind::kWelcome), {}, {}}, key_);
  return_credit(*incoming);
}

// Best effort: a peer that does not hear it gives up at its own deadline.
void Engine::refuse(const Address& peer, uint64_t connection, const std::string& why) {
  if (leaving_.size() >= kLeavingMax) return;
  auto endpoint = Endpoint::create(*worker_, peer.worker, watch_);
  if (!endpoint.ok()) return;
  send_refusal(*endpoint.value(), peer, connection, why);
  let_go(std::move(endpoint).value(), kLinger);
}

void Engine::send_refusal(Endpoint& endpoint, const Address& peer, uint64_t connection,
                          const std::string& why) {
  Message message{envelope_to(peer, connection, MessageKind::kRefuse), {}, {}};
  message.header = text_of(why);
  message.envelope.header_bytes = static_cast<uint32_t>(message.header.size());
  message.envelope.number = digest64(message.header.view(), key_);
  endpoint.send_control(message, key_);
}

void Engine::deliver(const std::shared_ptr<Incoming>& incoming) {
  while (!incoming->ended) {
    std::optional<Arrived> next = incoming->frames.take();
    if (!next) return;
    auto frame = make_frame(*incoming, std::move(*next));
    if (!frame.ok()) return note_broken(incoming, frame.error());
    events_.on_frame(std::move(frame).value());
  }
}

Result<Frame> Engine::make_frame(Incoming& incoming, Arrived arrived) {
  const Envelope& envelope = arrived.envelope;
  const ByteSpan data{arrived.memory.get(), data_bytes(envelope)};
  const ByteSpan payload = data.subspan(payload_offset(envelope));
  Frame frame;
  TROUPE_TRY(frame.header, decode_frame_header(data.first(envelope.header_bytes), payload, key_));
  shared_.figures.frames_received.fetch_add(1, std::memory_order_relaxed);
  shared_.figures.bytes_received.fetch_add(data.size(), std::memory_order_relaxed);
  std::byte* start = arrived.memory.get() + payload_offset(envelope);
  const auto lease = std::make_shared<Lease>(incoming.credits, std::move(arrived.memory));
  frame.payload =
      SharedBuffer::wrap(std::shared_ptr<std::byte>(lease, start), envelope.payload_bytes);
  frame.lease = lease;
  return frame;
}

void Engine::return_credit(Incoming& incoming) {
  if (incoming.endpoint == nullptr) return;
  const std::optional<uint64_t> released = incoming.credits->to_return();
  if (!released) return;
  Message message{
      envelope_to(incoming.peer, incoming.key.connection, MessageKind::kCredit), {}, {}};
  message.envelope.number = *released;
  incoming.endpoint->send_control(message, key_);
}

void Engine::drop(const std::shared_ptr<Incoming>& incoming, Duration linger) {
  incoming->ended = true;
  const auto found = incoming_.find(incoming->key);
  if (found != incoming_.end() && found->second == incoming) incoming_.erase(found);
  let_go(std::exchange(incoming->endpoint, nullptr), linger);
}

}  // namespace troupe::ucx

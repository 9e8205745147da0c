#include "transport/ucx/ucx_transport.h"

#include <pthread.h>

#include <cstring>
#include <future>
#include <thread>

#include "base/log.h"
#include "base/prng.h"
#include "base/time_slice.h"
#include "transport/ucx/engine.h"

namespace troupe {
namespace {

using ucx::Engine;
using ucx::Outgoing;

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(const UcxOptions& options) {
    shared_.options = options;
    shared_.instance = random_u64();
  }
  ~UcxTransport() override {
    shared_.mailbox->push(ucx::Stop{});
    if (thread_.joinable()) thread_.join();
  }

  // UCX wants its worker created, used and destroyed by one thread.
  Result<void> start(TransportEvents& events) {
    std::promise<Result<std::vector<std::byte>>> started;
    auto address = started.get_future();
    thread_ = std::thread([this, &events, &started] {
      pthread_setname_np(pthread_self(), "ucx-progress");
      (void)go_first();
      Engine engine(shared_, events);
      auto outcome = engine.start();
      const bool ok = outcome.ok();
      started.set_value(std::move(outcome));
      if (ok) engine.run();
    });
    TROUPE_TRY(address_, address.get());
    return {};
  }

  std::vector<std::byte> address() const override { return address_; }

  Result<ConnectionId> connect(ByteSpan address) override {
    TROUPE_TRY(ucx::Address peer, ucx::decode_address(address, shared_.options.key));
    const std::shared_ptr<Outgoing> connection = shared_.table.open(std::move(peer));
    const ConnectionId id = connection->id;
    shared_.mailbox->push(ucx::Connect{connection});
    return id;
  }

  SendOutcome send(ConnectionId id, Frame& frame) override;

  void close(ConnectionId id) override {
    const std::shared_ptr<Outgoing> connection = shared_.table.remove(id);
    if (connection != nullptr && connection->end()) shared_.mailbox->push(ucx::Close{connection});
  }

  TransportFigures figures() const override {
    const ucx::FigureCounters& counters = shared_.figures;
    return {counters.frames_sent.load(), counters.frames_received.load(),
            counters.bytes_sent.load(), counters.bytes_received.load(),
            counters.frames_refused.load()};
  }

 private:
  SendOutcome take_credit(Outgoing& connection, bool& urgent);

  ucx::Shared shared_;
  std::vector<std::byte> address_;
  std::thread thread_;
};

SendOutcome UcxTransport::take_credit(Outgoing& connection, bool& urgent) {
  if (connection.take_credit(urgent)) return SendOutcome::kAccepted;
  // Asked for before looking again: credit that arrives in between is either seen here or
  // announced.
  connection.credit_wanted.store(true);
  if (!connection.take_credit(urgent)) return SendOutcome::kNoCredit;
  connection.credit_wanted.store(false);
  return SendOutcome::kAccepted;
}

// Encodes on the caller's thread: digests of large payloads must not hold up the progress thread.
SendOutcome UcxTransport::send(ConnectionId id, Frame& frame) {
  const std::shared_ptr<Outgoing> connection = shared_.table.find(id);
  if (connection == nullptr || connection->ended.load()) return SendOutcome::kClosed;
  ucx::Message message;
  const SendOutcome outcome = take_credit(*connection, message.envelope.credit_urgent);
  if (outcome != SendOutcome::kAccepted) return outcome;
  auto header = encode_frame_header(frame.header, frame.payload.view(), shared_.options.key);
  if (!header.ok()) {
    log_error("ucx", "connection {}: a frame of ours breaks the rules: {}", to_string(id),
              to_string(header.error()));
    shared_.mailbox->push(ucx::Spoil{connection, header.error()});
    return SendOutcome::kClosed;
  }
  message.envelope.kind = ucx::MessageKind::kFrame;
  message.envelope.sender = shared_.instance;
  message.envelope.receiver = connection->peer.instance;
  message.envelope.connection = id.value;
  message.envelope.header_bytes = static_cast<uint32_t>(header.value().size());
  message.envelope.payload_bytes = static_cast<uint32_t>(frame.payload.size());
  const size_t padded = ucx::payload_offset(message.envelope);
  message.header = SharedBuffer::allocate(padded);
  std::memcpy(message.header.mutable_data(), header.value().data(), header.value().size());
  std::memset(message.header.mutable_data() + header.value().size(), 0,
              padded - header.value().size());
  message.payload = std::move(frame.payload);
  frame = {};
  shared_.mailbox->push(ucx::Send{connection, std::move(message)});
  return SendOutcome::kAccepted;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options,
                                                      TransportEvents& events) {
  TROUPE_TRY_VOID(check_ucx_environment(options.network));
  auto transport = std::make_unique<UcxTransport>(options);
  TROUPE_TRY_VOID(transport->start(events));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace troupe

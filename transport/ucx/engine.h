// The progress thread of a UCX transport: owns context, worker and endpoints; everything here runs
// on it. Others reach it through the mailbox, the connection table and atomics in Outgoing and
// CreditReturn.
//
// UCX calls back in the middle of its own work, so callbacks only note; each round then acts on
// what was noted.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "transport/ucx/incoming.h"
#include "transport/ucx/mailbox.h"
#include "transport/ucx/memory.h"
#include "transport/ucx/outgoing.h"
#include "transport/ucx/ucx_transport.h"

namespace troupe::ucx {

struct Connect {
  std::shared_ptr<Outgoing> connection;
};
struct Send {
  std::shared_ptr<Outgoing> connection;
  Message message;
};
struct Close {
  std::shared_ptr<Outgoing> connection;
};
// A frame that breaks the rules was to be sent: order cannot be kept any more.
struct Spoil {
  std::shared_ptr<Outgoing> connection;
  Error why;
};
struct ReturnCredit {
  PeerConnection key;
};
struct Stop {};
using Command = std::variant<Connect, Send, Close, Spoil, ReturnCredit, Stop>;
using CommandBox = Mailbox<Command>;

// Open outgoing connections by number, for any thread.
class ConnectionTable {
 public:
  std::shared_ptr<Outgoing> open(Address peer);
  std::shared_ptr<Outgoing> find(ConnectionId id) const;
  std::shared_ptr<Outgoing> remove(ConnectionId id);

 private:
  mutable std::mutex mutex_;
  std::map<ConnectionId, std::shared_ptr<Outgoing>> open_;
  uint64_t last_ = 0;
};

struct FigureCounters {
  std::atomic<uint64_t> frames_sent{0}, frames_received{0}, bytes_sent{0}, bytes_received{0};
  std::atomic<uint64_t> frames_refused{0};
};

// What all threads of a transport share.
struct Shared {
  UcxOptions options;
  uint64_t instance = 0;
  ConnectionTable table;
  FigureCounters figures;
  std::shared_ptr<CommandBox> mailbox = std::make_shared<CommandBox>();
};

class Engine {
 public:
  Engine(Shared& shared, TransportEvents& events);
  ~Engine();

  // Creates worker and context; the address peers connect to.
  Result<std::vector<std::byte>> start();
  // Until Stop arrives; then everything is closed, in bounded time.
  void run();

 private:
  struct Receive;  // a rendezvous in progress
  struct Control {
    Envelope envelope;
    std::vector<std::byte> data;
  };
  // An endpoint on its way out: closed by force when its operations are done and both sides
  // finished setting up, or at the deadline.
  struct Leaving {
    std::shared_ptr<Endpoint> endpoint;
    Instant deadline;
    std::shared_ptr<Outgoing> outgoing;  // whose welcome it waits for; none of an incoming one
  };

  // engine.cpp
  bool round();
  bool act_on_commands();
  void act(Connect& command);
  void act(Send& command);
  void act(Close& command);
  void act(Spoil& command);
  void act(ReturnCredit& command);
  void act(Stop&) { stopping_ = true; }
  void look_after_endpoints();
  void let_go(std::shared_ptr<Endpoint> endpoint, Duration linger,
              std::shared_ptr<Outgoing> outgoing = nullptr);
  void say_goodbye(const std::shared_ptr<Outgoing>& connection);
  void retry_control();
  void end_leaving(Instant now);
  void run_timers(Instant now);
  Duration until_next_timer(Instant now) const;
  void sleep();
  void say_farewell();
  void shut_down();
  void garbage(Error what);
  Envelope envelope_to(const Address& peer, uint64_t connection, MessageKind kind) const;

  // engine_outgoing.cpp
  void pump(Outgoing& connection);
  void lose(std::shared_ptr<Outgoing> connection, Error why);
  void on_welcome(const Control& control);
  void on_refusal(const Control& control);
  void on_credit(const Control& control);

  // engine_incoming.cpp
  static ucs_status_t receive(void* argument, const void* header, size_t header_length, void* data,
                              size_t length, const ucp_am_recv_param_t* parameters);
  ucs_status_t on_message(ByteSpan header, void* data, size_t length, bool rendezvous);
  ucs_status_t on_frame(const Envelope& envelope, void* data, size_t length, bool rendezvous);
  void note_hello(const Control& control);
  void arrived(const std::shared_ptr<Incoming>& incoming, Arrived frame, ucs_status_t status);
  void note_broken(const std::shared_ptr<Incoming>& incoming, Error why);
  bool act_on_notes();
  void act_on_control(const Control& control);
  void answer_hello(const Control& control);
  void refuse(const Address& peer, uint64_t connection, const std::string& why);
  void deliver(const std::shared_ptr<Incoming>& incoming);
  void return_credit(Incoming& incoming);
  void send_refusal(Endpoint& endpoint, const Address& peer, uint64_t connection,
                    const std::string& why);
  void drop(const std::shared_ptr<Incoming>& incoming, Duration linger);
  Result<Frame> make_frame(Incoming& incoming, Arrived arrived);
  SharedBuffer text_of(const std::string& text) const;

  Shared& shared_;
  TransportEvents& events_;
  const uint64_t key_;
  std::shared_ptr<BufferPool> pool_;
  EndpointWatch watch_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Worker> worker_;  // after the context: goes first
  std::vector<std::byte> address_;

  std::map<ConnectionId, std::shared_ptr<Outgoing>> outgoing_;
  std::map<PeerConnection, std::shared_ptr<Incoming>> incoming_;
  std::vector<Leaving> leaving_;
  uint64_t receives_ = 0;  // rendezvous that UCX has not called back for
  bool stopping_ = false;

  // Notes of the callbacks.
  std::vector<Control> control_;
  std::vector<std::shared_ptr<Incoming>> deliverable_;
  std::vector<std::pair<std::shared_ptr<Incoming>, Error>> broken_;
  std::vector<Error> garbage_;

  std::vector<Command> commands_;  // of this round
};

}  // namespace troupe::ucx

// The RPC server as an honest client sees it, over real loopback connections.
#include "actors/rpc/server.h"

#include <capnp/ez-rpc.h>

#include <boost/test/unit_test.hpp>
#include <future>
#include <thread>

#include "actors/rpc/wire.h"
#include "apps/client/client.h"
#include "schemas/client.capnp.h"
#include "tests/unit/rpc/fake_cluster.h"
#include "tests/unit/rpc/full_status.h"

namespace troupe::test {
namespace {

namespace schema = ::troupe::schema::client;

struct Setup {
  FakeCluster cluster;
  std::unique_ptr<RpcServer> server;

  explicit Setup(RpcOptions options = {}) {
    options.listen = "127.0.0.1:0";
    server = RpcServer::start(options, cluster).value();
  }
  std::unique_ptr<Client> client(const ClientOptions& options = {}) {
    return Client::connect({server->address()}, options).value();
  }
};

GenerateRequest request_for(uint32_t tokens) {
  GenerateRequest request;
  request.prompt = "hello";
  request.max_tokens = tokens;
  return request;
}

// Counts pushes, and lets them wait.
class CountingSink final : public schema::TokenSink::Server {
 public:
  CountingSink(size_t& pushes, size_t& pieces) : pushes_(pushes), pieces_(pieces) {}
  kj::Promise<void> push(PushContext context) override {
    ++pushes_;
    pieces_ += context.getParams().getPieces().size();
    return kj::READY_NOW;
  }

 private:
  size_t& pushes_;
  size_t& pieces_;
};

schema::Session::Client log_in(capnp::EzRpcClient& connection) {
  auto request = connection.getMain<schema::Door>().loginRequest();
  request.setProtocol(schema::PROTOCOL_VERSION);
  return request.send().wait(connection.getWaitScope()).getSession();
}

BOOST_AUTO_TEST_SUITE(rpc_server)

BOOST_AUTO_TEST_CASE(says_who_has_the_port) {
  Setup setup;
  RpcOptions options;
  options.listen = setup.server->address();
  const auto second = RpcServer::start(options, setup.cluster);
  BOOST_REQUIRE(!second.ok());
  BOOST_TEST((second.error().code == ErrorCode::kUnavailable));
  BOOST_TEST(second.error().message == "cannot listen on " + setup.server->address() +
                                           ": the port is in use by another program; stop it or "
                                           "choose another port");
}

BOOST_AUTO_TEST_CASE(refuses_addresses_that_are_malformed_or_not_loopback) {
  FakeCluster cluster;
  for (const char* address :
       {"0.0.0.0:0", "192.0.2.1:7421", "[::]:0", "", "127.0.0.1", ":7421",
        "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:7421", "[::1:0"}) {
    RpcOptions options;
    options.listen = address;
    const auto server = RpcServer::start(options, cluster);
    BOOST_TEST_CONTEXT(address) {
      BOOST_REQUIRE(!server.ok());
      BOOST_TEST((server.error().code == ErrorCode::kInvalidArgument));
    }
  }
}

BOOST_AUTO_TEST_CASE(sends_all_queued_tokens_in_few_pushes) {
  Setup setup;
  capnp::EzRpcClient connection(setup.server->address());
  auto session = log_in(connection);
  auto request = session.generateRequest();
  rpc::write(request_for(1000), request.initRequest());
  size_t pushes = 0;
  size_t pieces = 0;
  request.setSink(kj::heap<CountingSink>(pushes, pieces));
  auto answer = request.send().wait(connection.getWaitScope());
  BOOST_TEST(pieces == 1000U);
  // All were there at once, and at most 512 go into one push.
  BOOST_TEST(pushes == 2U);
  BOOST_TEST((answer.getEnd().getReason() == schema::FinishReason::LENGTH));
  BOOST_TEST(answer.getEnd().getId().size() == 32U);  // made by the server
}

BOOST_AUTO_TEST_CASE(refuses_bad_arguments_as_values_without_asking_the_cluster) {
  Setup setup;
  capnp::EzRpcClient connection(setup.server->address());
  auto session = log_in(connection);
  const auto refusal = [&](const std::function<void(schema::GenerateRequest::Builder)>& spoil) {
    auto request = session.generateRequest();
    rpc::write(request_for(4), request.initRequest());
    spoil(request.getRequest());
    size_t count = 0;
    request.setSink(kj::heap<CountingSink>(count, count));
    auto answer = request.send().wait(connection.getWaitScope());
    return rpc::read(answer.getEnd().getFailure());
  };
  BOOST_TEST(refusal([](auto request) { request.getPrompt().setNone(); }).message ==
             "the prompt is empty: give a text, chat messages or tokens");
  BOOST_TEST(refusal([](auto request) { request.setTemperature(-1); }).message ==
             "temperature is -1, allowed are 0 (greedy) to 100");
  BOOST_TEST(
      refusal([](auto request) { request.setId("a b"); }).message ==
      "the request id holds byte 0x20 at position 1, allowed is printable ASCII without spaces");
  BOOST_TEST(refusal([](auto request) {
               request.getPrompt().setText(
                   kj::heapString(std::string((4U << 20) + 1, 'x').c_str()));
             }).message == "a prompt in bytes of 4194305, limit 4194304");
  BOOST_TEST(
      (refusal([](auto request) { request.setMaxTokens(0); }).code == ErrorCode::kInvalidArgument));
  BOOST_TEST(setup.cluster.started() == 0U);
}

BOOST_AUTO_TEST_CASE(a_status_arrives_whole) {
  Setup setup;
  setup.cluster.on_status = [](StatusAnswer answer) { answer(full_status()); };
  const auto status = setup.client()->status();
  BOOST_REQUIRE(status.ok());
  BOOST_TEST(flatten(status.value()) == flatten(full_status()), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_clusters_errors_arrive_as_they_are) {
  Setup setup;
  setup.cluster.on_status = [](StatusAnswer answer) {
    answer(Error{ErrorCode::kFenced, "old view"});
  };
  const auto status = setup.client()->status();
  BOOST_REQUIRE(!status.ok());
  BOOST_TEST((status.error().code == ErrorCode::kFenced));
  BOOST_TEST(status.error().message == "old view");
}

BOOST_AUTO_TEST_CASE(an_answer_that_is_dropped_or_late_is_an_error) {
  RpcOptions options;
  options.answer_max = 20ms;
  Setup setup(options);
  auto client = setup.client();
  setup.cluster.on_status = [](StatusAnswer) {};
  BOOST_TEST(client->status().error().message == "the request was dropped without an answer");
  StatusAnswer kept;
  setup.cluster.on_status = [&](StatusAnswer answer) { kept = std::move(answer); };
  BOOST_TEST((client->status().error().code == ErrorCode::kDeadlineExceeded));
  kept(ClusterStatus{});  // late, and harmless
  setup.server->stop(0ms);
  kept(ClusterStatus{});
}

BOOST_AUTO_TEST_CASE(faults_are_refused_unless_allowed) {
  Setup closed;
  BOOST_TEST(closed.client()->inject_fault({"", 1, FaultKind::kKill}).error().message ==
             "fault injection is not allowed on this daemon");
  RpcOptions options;
  options.fault_injection = true;
  Setup open(options);
  FaultCall seen;
  open.cluster.on_fault = [&](FaultCall call, Done done) {
    seen = std::move(call);
    done({});
  };
  BOOST_TEST(open.client()->inject_fault({"smollm2", 2, FaultKind::kHang}).ok());
  BOOST_TEST(seen.model == "smollm2");
  BOOST_TEST(seen.stage == 2U);
  BOOST_TEST((seen.kind == FaultKind::kHang));
  BOOST_TEST(seen.text == "");
  BOOST_TEST(open.client()->inject_fault({.stage = 1, .text = "kill@computed+3"}).ok());
  BOOST_TEST(seen.text == "kill@computed+3");
  auto client = open.client();
  BOOST_TEST(client->inject_fault("smollm2", 3, "stop@sent+12").ok());
  BOOST_TEST(seen.model == "smollm2");
  BOOST_TEST(seen.stage == 3U);
  BOOST_TEST(seen.text == "stop@sent+12");
  // Would be taken for a fault without words, which throws.
  seen.text = "untouched";
  BOOST_TEST(client->inject_fault("", 0, "").error().message == "the fault is empty");
  BOOST_TEST(seen.text == "untouched");
  BOOST_TEST(open.client()->inject_fault({.text = std::string(65, 'k')}).error().message ==
             "a fault of 65 bytes, limit 64");
}

BOOST_AUTO_TEST_CASE(drains_and_moves_arrive_with_their_arguments) {
  Setup setup;
  DrainCall drain;
  setup.cluster.on_drain = [&](DrainCall call, Done done) {
    drain = std::move(call);
    done({});
  };
  MoveCall move;
  setup.cluster.on_move = [&](MoveCall call, Done done) {
    move = std::move(call);
    done(Error{ErrorCode::kResourceExhausted, "no room"});
  };
  auto client = setup.client();
  BOOST_TEST(client->drain({"node-2", true}).ok());
  BOOST_TEST(drain.node == "node-2");
  BOOST_TEST(drain.drained);
  BOOST_TEST(client->drain({"node-3", false}).ok());
  BOOST_TEST(drain.node == "node-3");
  BOOST_TEST(!drain.drained);
  const auto moved = client->move({"smollm2", 7, "node-1"});
  BOOST_REQUIRE(!moved.ok());
  BOOST_TEST((moved.error().code == ErrorCode::kResourceExhausted));
  BOOST_TEST(moved.error().message == "no room");
  BOOST_TEST(move.model == "smollm2");
  BOOST_TEST(move.stage == 7U);
  BOOST_TEST(move.node == "node-1");
}

BOOST_AUTO_TEST_CASE(a_standby_policy_arrives) {
  Setup setup;
  StandbyCall seen;
  setup.cluster.on_standby = [&](StandbyCall call, Done done) {
    seen = std::move(call);
    done({});
  };
  auto client = setup.client();
  BOOST_TEST(client->set_standby({"smollm2", StandbyPolicy::kKv}).ok());
  BOOST_TEST(seen.model == "smollm2");
  BOOST_TEST((seen.policy == StandbyPolicy::kKv));
  BOOST_TEST(client->set_standby({"", StandbyPolicy::kNone}).ok());
  BOOST_TEST((seen.policy == StandbyPolicy::kNone));
  BOOST_TEST((client->set_standby({std::string(257, 'm'), StandbyPolicy::kKv}).error().code ==
              ErrorCode::kInvalidArgument));
}

BOOST_AUTO_TEST_CASE(the_server_checks_drains_and_moves_itself) {
  Setup setup;
  setup.cluster.on_drain = [](DrainCall, Done) { std::abort(); };
  setup.cluster.on_move = [](MoveCall, Done) { std::abort(); };
  capnp::EzRpcClient connection(setup.server->address());
  auto session = log_in(connection);
  auto drain = session.drainNodeRequest();
  drain.setNode("node 2");
  BOOST_TEST(
      rpc::read(drain.send().wait(connection.getWaitScope()).getFailure()).message ==
      "the node id holds byte 0x20 at position 4, allowed is printable ASCII without spaces");
  auto move = session.moveStageRequest();
  BOOST_TEST(rpc::read(move.send().wait(connection.getWaitScope()).getFailure()).message ==
             "the node id is empty");
}

BOOST_AUTO_TEST_CASE(a_shutdown_arrives_with_its_arguments) {
  Setup setup;
  ShutdownCall seen;
  setup.cluster.on_shutdown = [&](ShutdownCall call, Done done) {
    seen = call;
    done({});
  };
  BOOST_TEST(setup.client()->shutdown({true, 1500ms}).ok());
  BOOST_TEST(seen.whole_cluster);
  BOOST_TEST((seen.drain_max == Duration{1500ms}));
  BOOST_TEST((setup.client()->shutdown({false, 2h}).error().code == ErrorCode::kInvalidArgument));
}

BOOST_AUTO_TEST_CASE(a_wrong_token_is_refused) {
  RpcOptions options;
  options.token = "sesame";
  Setup setup(options);
  const auto refused = Client::connect({setup.server->address()}, {.token = "sesam"});
  BOOST_REQUIRE(!refused.ok());
  BOOST_TEST(refused.error().message == "the token was refused");
  BOOST_TEST(setup.client({.token = "sesame"})->status().ok());
}

BOOST_AUTO_TEST_CASE(an_old_protocol_is_refused_with_what_is_spoken) {
  Setup setup;
  capnp::EzRpcClient connection(setup.server->address());
  auto request = connection.getMain<schema::Door>().loginRequest();
  auto answer = request.send().wait(connection.getWaitScope());
  BOOST_TEST(!answer.hasSession());
  BOOST_TEST(rpc::read(answer.getFailure()).message ==
             "protocol version 0, this daemon speaks 1; update the client");
}

BOOST_AUTO_TEST_CASE(a_client_that_drops_its_call_is_detached_at_once) {
  Setup setup;
  setup.cluster.on_generate = [](const GenerateCall&, PieceSink&) {};
  capnp::EzRpcClient connection(setup.server->address());
  auto session = log_in(connection);
  size_t count = 0;
  {
    auto request = session.generateRequest();
    rpc::write(request_for(4), request.initRequest());
    request.setSink(kj::heap<CountingSink>(count, count));
    auto dropped = request.send();
    session.pingRequest().send().wait(connection.getWaitScope());
    BOOST_TEST(setup.server->figures().generates == 1U);
  }
  session.pingRequest().send().wait(connection.getWaitScope());
  setup.cluster.wait_detached(1);
  BOOST_TEST(setup.server->figures().generates == 0U);
}

BOOST_AUTO_TEST_CASE(a_gap_in_the_tokens_ends_the_stream) {
  Setup setup;
  setup.cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    sink.piece(token_of(call.id, 0));
    sink.piece(token_of(call.id, 0));  // a repetition is dropped
    sink.piece(token_of(call.id, 2));
  };
  const auto outcome = setup.client()->generate(request_for(4));
  BOOST_REQUIRE(!outcome.ok());
  BOOST_TEST((outcome.error().code == ErrorCode::kInternal));
  BOOST_TEST(outcome.error().message == "token 2 came where token 1 was due");
}

BOOST_AUTO_TEST_CASE(limits_what_runs_on_one_connection) {
  RpcOptions options;
  options.generates_max = 1;
  Setup setup(options);
  setup.cluster.on_generate = [](const GenerateCall&, PieceSink&) {};
  auto client = setup.client();
  auto first = std::async(std::launch::async, [&] { return client->generate(request_for(1)); });
  const auto started = setup.cluster.wait_started(1);
  BOOST_TEST((client->generate(request_for(1)).error().code == ErrorCode::kResourceExhausted));
  FakeCluster::send_all(started.call, *started.sink);
  BOOST_TEST(first.get().ok());
}

BOOST_AUTO_TEST_CASE(stopping_lets_running_requests_end) {
  Setup setup;
  setup.cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    sink.piece(token_of(call.id, 0));
  };
  auto client = setup.client();
  std::promise<void> first_token;
  auto running = std::async(std::launch::async, [&] {
    return client->generate(request_for(3), [&](const GeneratedPiece& piece) {
      if (piece.index == 0) first_token.set_value();
      return true;
    });
  });
  first_token.get_future().wait();
  const auto started = setup.cluster.wait_started(1);
  auto stopping = std::async(std::launch::async, [&] { setup.server->stop(30s); });
  FakeCluster::send_all(started.call, *started.sink);
  const auto outcome = running.get();
  stopping.get();
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST(outcome.value().text == text_of(0, 3));
  BOOST_TEST(setup.cluster.detached().empty());
}

BOOST_AUTO_TEST_CASE(stopping_without_time_detaches_what_runs) {
  Setup setup;
  setup.cluster.on_generate = [](const GenerateCall&, PieceSink&) {};
  auto client = setup.client({.resume_max = 0ms});
  auto running = std::async(std::launch::async, [&] { return client->generate(request_for(3)); });
  const auto started = setup.cluster.wait_started(1);
  setup.server->stop(0ms);
  BOOST_TEST(setup.cluster.detached().size() == 1U);
  BOOST_TEST((running.get().error().code == ErrorCode::kUnavailable));
  FakeCluster::send_all(started.call, *started.sink);  // late, and harmless
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::test

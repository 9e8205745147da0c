// The client's promise: whatever happens to connections and daemons, each token once, in order, and
// the rest.
#include "apps/client/client.h"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <future>
#include <random>
#include <stdexcept>
#include <thread>

#include "actors/rpc/server.h"
#include "tests/unit/rpc/fake_cluster.h"
#include "tests/unit/rpc/port.h"

namespace troupe::test {
namespace {

const ClientOptions kEager{.backoff_min = 1ms, .backoff_max = 20ms};

std::unique_ptr<RpcServer> serve(ClusterRequests& cluster,
                                 const std::string& listen = "127.0.0.1:0",
                                 RpcOptions options = {}) {
  options.listen = listen;
  return RpcServer::start(options, cluster).value();
}

GenerateRequest request_for(uint32_t tokens) {
  GenerateRequest request;
  request.prompt = "hello";
  request.max_tokens = tokens;
  return request;
}

// Collects; may run on any thread, where Boost.Test's checks may not. A piece out of order stops
// it.
struct Collector {
  std::vector<GeneratedPiece> pieces{};
  bool operator()(const GeneratedPiece& piece) {
    if (piece.index != pieces.size()) return false;
    pieces.push_back(piece);
    return true;
  }
};

BOOST_AUTO_TEST_SUITE(client)

BOOST_AUTO_TEST_CASE(streams_every_token_in_order) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    for (uint64_t i = 0; i < call.max_tokens; ++i) sink.piece(token_of(call.id, i));
    GenerateEnd end = length_end(call.max_tokens);
    end.reason = FinishReason::kStop;
    end.text = "\xEF\xBF\xBD";
    sink.end(end);
  };
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  Collector collector;
  GenerateRequest request = request_for(5000);
  request.id = "my-id";
  const auto outcome = client->generate(request, std::ref(collector));
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST(collector.pieces.size() == 5000U);
  BOOST_TEST(collector.pieces[4999].token == token_of("my-id", 4999).token);
  BOOST_TEST(collector.pieces[4999].logits_digest == token_of("my-id", 4999).logits_digest);
  BOOST_TEST(outcome.value().id == "my-id");
  BOOST_TEST((outcome.value().reason == FinishReason::kStop));
  BOOST_TEST(outcome.value().prompt_tokens == 5U);
  BOOST_TEST(outcome.value().generated_tokens == 5000U);
  BOOST_TEST(outcome.value().text == text_of(0, 5000) + "\xEF\xBF\xBD");
  BOOST_TEST(outcome.value().resumptions == 0U);
}

BOOST_AUTO_TEST_CASE(many_threads_share_one_client) {
  FakeCluster cluster;
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  std::vector<std::future<Result<GenerateOutcome>>> running;
  for (int i = 0; i < 8; ++i)
    running.push_back(std::async(std::launch::async,
                                 [&] { return client->generate(request_for(200), Collector{}); }));
  for (auto& outcome : running) BOOST_TEST(outcome.get().value().text == text_of(0, 200));
  BOOST_TEST(server->figures().accepted == 1U);
}

BOOST_AUTO_TEST_CASE(a_callback_that_says_no_cancels_the_request) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    for (uint64_t i = 0; i < 5; ++i) sink.piece(token_of(call.id, i));
  };
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  const auto outcome = client->generate(
      request_for(100), [](const GeneratedPiece& piece) { return piece.index < 2; });
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST((outcome.value().reason == FinishReason::kCancelled));
  BOOST_TEST(outcome.value().text == text_of(0, 3));
  BOOST_TEST(cluster.cancelled().size() == 1U);
  BOOST_TEST(cluster.cancelled().front() == outcome.value().id);
}

BOOST_AUTO_TEST_CASE(a_callback_that_throws_cancels_the_request) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    sink.piece(token_of(call.id, 0));
  };
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  const auto thrower = [](const GeneratedPiece&) -> bool { throw std::runtime_error("no"); };
  BOOST_CHECK_THROW((void)client->generate(request_for(9), thrower), std::runtime_error);
  BOOST_TEST(client->status().ok());
  BOOST_TEST(cluster.cancelled().size() == 1U);
}

BOOST_AUTO_TEST_CASE(another_thread_cancels_by_id) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall&, PieceSink&) {};
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  GenerateRequest request = request_for(9);
  request.id = "long-one";
  auto running = std::async(std::launch::async, [&] { return client->generate(request); });
  (void)cluster.wait_started(1);
  BOOST_TEST(client->cancel("long-one").ok());
  BOOST_TEST((running.get().value().reason == FinishReason::kCancelled));
  BOOST_TEST((client->cancel("nobody").error().code == ErrorCode::kNotFound));
}

BOOST_AUTO_TEST_CASE(a_client_that_vanishes_is_detached_and_leaves_nothing) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    sink.piece(token_of(call.id, 0));
  };
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  std::vector<std::future<Result<GenerateOutcome>>> running;
  for (int i = 0; i < 24; ++i)
    running.push_back(
        std::async(std::launch::async, [&] { return client->generate(request_for(9)); }));
  (void)cluster.wait_started(24);
  BOOST_TEST(server->figures().generates == 24U);
  client.reset();
  for (auto& outcome : running) BOOST_TEST((outcome.get().error().code == ErrorCode::kCancelled));
  cluster.wait_detached(24);
  BOOST_TEST(server->figures().generates == 0U);
  server->stop(0ms);
  BOOST_TEST(server->figures().connections == 0U);
}

BOOST_AUTO_TEST_CASE(a_restarted_daemon_goes_on_with_exactly_the_rest) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    if (call.after > 0) return FakeCluster::send_all(call, sink);
    for (uint64_t i = 0; i < 40; ++i) sink.piece(token_of(call.id, i));
  };
  auto server = serve(cluster);
  const std::string address = server->address();
  auto client = Client::connect({address}, kEager).value();
  std::promise<void> half;
  Collector collector;
  auto running = std::async(std::launch::async, [&] {
    return client->generate(request_for(100), [&](const GeneratedPiece& piece) {
      if (piece.index == 39) half.set_value();
      return collector(piece);
    });
  });
  half.get_future().wait();
  server.reset();
  server = serve(cluster, address);
  const auto outcome = running.get();
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST(outcome.value().text == text_of(0, 100));
  BOOST_TEST(outcome.value().resumptions >= 1U);
  BOOST_TEST(collector.pieces.size() == 100U);
  const auto again = cluster.wait_started(2);
  BOOST_TEST(again.call.id == cluster.wait_started(1).call.id);
  BOOST_TEST(again.call.after == 40U);
  BOOST_TEST(again.call.prompt == "hello");
}

BOOST_AUTO_TEST_CASE(connections_cut_at_random_moments_lose_and_double_nothing) {
  const uint64_t seed = 20261130;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  FakeCluster cluster;
  auto server = serve(cluster);
  Relay relay(server->address());
  auto client = Client::connect({relay.address()}, kEager).value();
  for (int round = 0; round < 10; ++round) {
    const uint64_t first_cut = random() % 700;
    const uint64_t second_cut = first_cut + random() % 700;
    Collector collector;
    const auto outcome = client->generate(request_for(2000), [&](const GeneratedPiece& piece) {
      if (piece.index == first_cut || piece.index == second_cut) relay.cut();
      return collector(piece);
    });
    BOOST_REQUIRE(outcome.ok());
    BOOST_TEST(outcome.value().text == text_of(0, 2000));
    BOOST_TEST(collector.pieces.size() == 2000U);
  }
}

BOOST_AUTO_TEST_CASE(a_recovering_cluster_is_asked_again_until_it_serves) {
  FakeCluster cluster;
  std::atomic<int> refusals{5};
  cluster.on_generate = [&](const GenerateCall& call, PieceSink& sink) {
    if (refusals-- > 0)
      return sink.end(failed_end(ErrorCode::kUnavailable, "a stage is restarting"));
    FakeCluster::send_all(call, sink);
  };
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}, kEager).value();
  const auto outcome = client->generate(request_for(10), Collector{});
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST(outcome.value().text == text_of(0, 10));
  BOOST_TEST(outcome.value().resumptions == 5U);
}

BOOST_AUTO_TEST_CASE(gives_up_after_the_time_it_was_given_and_says_why) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall&, PieceSink& sink) {
    sink.end(failed_end(ErrorCode::kUnavailable, "no node has room"));
  };
  auto server = serve(cluster);
  ClientOptions options = kEager;
  options.resume_max = 50ms;
  auto client = Client::connect({server->address()}, options).value();
  const auto outcome = client->generate(request_for(10));
  BOOST_REQUIRE(!outcome.ok());
  BOOST_TEST((outcome.error().code == ErrorCode::kUnavailable));
  BOOST_TEST(outcome.error().message == "given up after 0.05 s at token 0: no node has room");
}

BOOST_AUTO_TEST_CASE(other_failures_are_final) {
  FakeCluster cluster;
  cluster.on_generate = [](const GenerateCall&, PieceSink& sink) {
    sink.end(failed_end(ErrorCode::kConflict, "the id was used for another request"));
  };
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}, kEager).value();
  const auto outcome = client->generate(request_for(10));
  BOOST_TEST((outcome.error().code == ErrorCode::kConflict));
  BOOST_TEST(cluster.started() == 1U);
}

BOOST_AUTO_TEST_CASE(a_client_too_slow_for_the_queue_resumes_where_it_was) {
  FakeCluster cluster;
  RpcOptions options;
  options.pieces_queued_max = 30;  // of the 100 that come at once
  auto server = serve(cluster, "127.0.0.1:0", options);
  auto client = Client::connect({server->address()}, kEager).value();
  Collector collector;
  const auto outcome = client->generate(request_for(100), std::ref(collector));
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST(outcome.value().text == text_of(0, 100));
  BOOST_TEST(outcome.value().resumptions == 3U);  // 30 + 30 + 30 + 10
  BOOST_TEST(cluster.detached().empty());         // the cluster had ended each of them itself
}

BOOST_AUTO_TEST_CASE(goes_on_with_the_next_address) {
  FakeCluster first_cluster, second_cluster;
  first_cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    for (uint64_t i = 0; i < 7; ++i) sink.piece(token_of(call.id, i));
  };
  auto first = serve(first_cluster);
  auto second = serve(second_cluster);
  auto client = Client::connect({first->address(), second->address()}, kEager).value();
  std::promise<void> started;
  Collector collector;
  auto running = std::async(std::launch::async, [&] {
    return client->generate(request_for(20), [&](const GeneratedPiece& piece) {
      if (piece.index == 6) started.set_value();
      return collector(piece);
    });
  });
  started.get_future().wait();
  first.reset();
  BOOST_TEST(running.get().value().text == text_of(0, 20));
  BOOST_TEST(second_cluster.wait_started(1).call.after == 7U);
}

BOOST_AUTO_TEST_CASE(a_daemon_that_freezes_in_mid_stream_is_left_for_another) {
  FakeCluster first_cluster, second_cluster;
  first_cluster.on_generate = [](const GenerateCall& call, PieceSink& sink) {
    for (uint64_t i = 0; i < 7; ++i) sink.piece(token_of(call.id, i));
  };
  auto first = serve(first_cluster);
  auto second = serve(second_cluster);
  Relay relay(first->address());
  ClientOptions options = kEager;
  options.ping_interval = 5ms;
  options.ping_max = 1s;
  auto client = Client::connect({relay.address(), second->address()}, options).value();
  Collector collector;
  const auto outcome = client->generate(request_for(20), [&](const GeneratedPiece& piece) {
    if (piece.index == 6) relay.freeze();
    return collector(piece);
  });
  BOOST_REQUIRE(outcome.ok());
  BOOST_TEST(outcome.value().text == text_of(0, 20));
  BOOST_TEST(second_cluster.wait_started(1).call.after == 7U);
}

BOOST_AUTO_TEST_CASE(a_daemon_that_never_answers_is_left_for_another) {
  // A port that accepts and never says anything, as a stopped process does.
  FakeCluster cluster;
  auto server = serve(cluster);
  const SilentPort silent;
  ClientOptions options = kEager;
  options.connect_max = 50ms;
  auto client = Client::connect({silent.address(), server->address()}, options);
  BOOST_REQUIRE(client.ok());
  BOOST_TEST(client.value()->generate(request_for(5)).value().text == text_of(0, 5));
}

BOOST_AUTO_TEST_CASE(says_which_addresses_do_not_answer) {
  FakeCluster cluster;
  auto server = serve(cluster);
  const std::string gone = server->address();
  server.reset();
  const auto client = Client::connect({gone}, kEager);
  BOOST_REQUIRE(!client.ok());
  BOOST_TEST((client.error().code == ErrorCode::kUnavailable));
  BOOST_TEST(client.error().message.find("no daemon answers: " + gone) == 0U);
  BOOST_TEST((Client::connect({}).error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST((Client::connect({"nonsense"}).error().code == ErrorCode::kInvalidArgument));
}

BOOST_AUTO_TEST_CASE(bad_arguments_do_not_leave_the_client) {
  FakeCluster cluster;
  auto server = serve(cluster);
  auto client = Client::connect({server->address()}).value();
  BOOST_TEST((client->generate(request_for(0)).error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST((client->cancel("").error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST((client->drain({"", true}).error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST((client->move({"", 0, "a b"}).error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST((client->shutdown({false, -1s}).error().code == ErrorCode::kInvalidArgument));
  BOOST_TEST(cluster.started() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::test

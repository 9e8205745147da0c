// Strangers at the port: whatever they send, and whatever they leave unsaid, they are shown out,
// and the healthy client beside them notices nothing.
#include <capnp/message.h>
#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>

#include <boost/test/unit_test.hpp>
#include <random>

#include "actors/rpc/server.h"
#include "apps/client/client.h"
#include "schemas/client.capnp.h"
#include "tests/unit/rpc/fake_cluster.h"
#include "tests/unit/rpc/port.h"

namespace troupe::test {
namespace {

namespace schema = ::troupe::schema::client;

std::string words(std::initializer_list<uint32_t> values) {
  std::string bytes;
  for (const uint32_t value : values) bytes.append(reinterpret_cast<const char*>(&value), 4);
  return bytes;
}

template <class Fill>
std::string message(Fill fill) {
  capnp::MallocMessageBuilder builder;
  fill(builder.initRoot<capnp::rpc::Message>());
  const auto flat = capnp::messageToFlatArray(builder);
  return {reinterpret_cast<const char*>(flat.begin()), flat.asBytes().size()};
}

std::string bootstrap(uint32_t question) {
  return message([&](auto root) { root.initBootstrap().setQuestionId(question); });
}

// A call on the result of another question; `field` is the pointer field of the result, or none.
std::string call(uint32_t question, uint32_t target, int field, uint64_t interface,
                 uint16_t method) {
  return message([&](auto root) {
    auto body = root.initCall();
    body.setQuestionId(question);
    auto answer = body.initTarget().initPromisedAnswer();
    answer.setQuestionId(target);
    if (field >= 0) answer.initTransform(1)[0].setGetPointerField(static_cast<uint16_t>(field));
    body.setInterfaceId(interface);
    body.setMethodId(method);
    auto content = body.initParams().initContent();
    if (interface == capnp::typeId<schema::Door>())
      content.template initAs<schema::Door::LoginParams>().setProtocol(1);
  });
}

std::string finish(uint32_t question) {
  return message([&](auto root) {
    auto body = root.initFinish();
    body.setQuestionId(question);
    body.setReleaseResultCaps(false);
  });
}

// Enters as a client does: questions 0 and 1 stay open, pings may be sent on the session in
// question 1.
std::string enter() {
  return bootstrap(0) + call(1, 0, -1, capnp::typeId<schema::Door>(), 0);
}
constexpr int kSessionField = 1;  // of login's results: failure, session, version, node
std::string ping(uint32_t question) {
  return call(question, 1, kSessionField, capnp::typeId<schema::Session>(), 5);
}

struct Setup {
  FakeCluster cluster;
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<Client> healthy;

  explicit Setup(RpcOptions options = {}) {
    options.listen = "127.0.0.1:0";
    server = RpcServer::start(options, cluster).value();
    healthy = Client::connect({server->address()}).value();
  }
  // The connection that was made first still works.
  void check_healthy() {
    GenerateRequest request;
    request.prompt = "hello";
    request.max_tokens = 20;
    const auto outcome = healthy->generate(request);
    BOOST_REQUIRE(outcome.ok());
    BOOST_TEST(outcome.value().text == text_of(0, 20));
    BOOST_TEST(outcome.value().resumptions == 0U);
  }
};

BOOST_AUTO_TEST_SUITE(rpc_hostile)

struct Hostile {
  const char* name;
  std::string bytes;
};

std::vector<Hostile> hostile_bytes() {
  const auto far_away = words({0, 2, 0x7FFFFFFC, 0xFFFFFFFF, 0, 0});
  return {
      {"segment count of 2^32", words({0xFFFFFFFF, 0})},
      {"segment count of 2^32 - 1", words({0xFFFFFFFE, 0xFFFFFFFF, 1, 1})},
      {"65 segments", words({64, 1})},
      {"a segment of 32 GiB", words({0, 0xFFFFFFFF})},
      {"segments whose sum wraps", words({1, 0xFFFFFFFF, 2, 0})},
      {"64 KiB and a word before login", words({0, 8193})},
      {"an empty message", words({0, 0})},
      {"a pointer out of the message", far_away},
      {"HTTP", "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"},
      {"TLS",
       std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'x')},
      {"a call on a question that was never asked", ping(7)},
      {"an answer to nothing", message([](auto root) { root.initReturn().setAnswerId(9); })},
      {"a finish of nothing", finish(3)},
      {"more bootstraps than anyone needs",
       [] {
         std::string bytes;
         for (uint32_t i = 0; i < 65; ++i) bytes += bootstrap(i);
         return bytes;
       }()},
  };
}

BOOST_AUTO_TEST_CASE(strangers_are_shown_out_and_nobody_else_notices) {
  Setup setup;
  for (const Hostile& hostile : hostile_bytes()) {
    BOOST_TEST_CONTEXT(hostile.name) {
      RawSocket stranger(setup.server->address());
      stranger.send(hostile.bytes);
      stranger.stop_sending();
      BOOST_TEST(stranger.closed_by_peer());
      setup.check_healthy();
    }
  }
}

BOOST_AUTO_TEST_CASE(the_segment_table_alone_is_enough_to_be_shown_out) {
  // Without the goodbye of the test above: the server itself ends these.
  Setup setup;
  for (const Hostile& hostile : hostile_bytes()) {
    if (hostile.bytes.size() > 16 && hostile.bytes.substr(0, 3) != "GET") continue;
    BOOST_TEST_CONTEXT(hostile.name) {
      RawSocket stranger(setup.server->address());
      stranger.send(hostile.bytes);
      BOOST_TEST(stranger.closed_by_peer());
    }
  }
  BOOST_TEST(setup.server->figures().refused >= 7U);
  setup.check_healthy();
}

BOOST_AUTO_TEST_CASE(random_changes_to_a_good_session_harm_nobody) {
  const uint64_t seed = 4711;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  Setup setup;
  const std::string good = enter() + ping(2) + finish(2) + ping(3) + finish(3) + finish(1);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (uint64_t changes = 1 + random() % 6; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    RawSocket stranger(setup.server->address());
    stranger.send(bytes.substr(0, random() % (bytes.size() + 1)));
    if (random() % 4 == 0) {
      stranger.reset();
      continue;
    }
    stranger.stop_sending();
    BOOST_TEST(stranger.closed_by_peer());
  }
  setup.check_healthy();
}

BOOST_AUTO_TEST_CASE(who_does_not_log_in_in_time_is_shown_out) {
  RpcOptions options;
  options.login_max = 30ms;
  Setup setup(options);
  RawSocket silent(setup.server->address());
  RawSocket halfway(setup.server->address());
  halfway.send(bootstrap(0));
  RawSocket dripping(setup.server->address());
  dripping.send(bootstrap(0).substr(0, 12));
  BOOST_TEST(silent.closed_by_peer());
  BOOST_TEST(halfway.closed_by_peer());
  BOOST_TEST(dripping.closed_by_peer());
  BOOST_TEST(setup.server->figures().refused == 3U);
  setup.check_healthy();  // logged in long ago
}

BOOST_AUTO_TEST_CASE(a_message_that_is_never_finished_ends_the_connection) {
  RpcOptions options;
  options.write_stall_max = 50ms;
  Setup setup(options);
  RawSocket stranger(setup.server->address());
  stranger.send(enter() + words({0, 100}) + "the rest never comes");
  BOOST_TEST(stranger.closed_by_peer());
  setup.check_healthy();
}

BOOST_AUTO_TEST_CASE(connections_over_the_cap_are_closed_and_room_is_made_again) {
  RpcOptions options;
  options.connections_max = 2;
  Setup setup(options);
  {
    RawSocket second(setup.server->address());
    second.send(bootstrap(0));
    RawSocket third(setup.server->address());
    BOOST_TEST(third.closed_by_peer());
    second.stop_sending();
    BOOST_TEST(second.closed_by_peer());
  }
  BOOST_TEST(Client::connect({setup.server->address()}).ok());
  setup.check_healthy();
}

BOOST_AUTO_TEST_CASE(who_calls_and_never_reads_is_not_read_either) {
  Setup setup;
  RawSocket stranger(setup.server->address());
  std::string flood = enter();
  constexpr uint32_t kPings = 200'000;
  for (uint32_t i = 2; i < kPings; ++i) flood += ping(i) + finish(i);
  // Once 256 answers are queued and the kernel's buffers are full, nothing more is taken: a small
  // part.
  const size_t sent = stranger.send(flood);
  BOOST_TEST(sent < flood.size() / 2);
  setup.check_healthy();
}

BOOST_AUTO_TEST_CASE(who_never_finishes_its_calls_is_shown_out) {
  RpcOptions options;
  options.questions_max = 500;
  Setup setup(options);
  RawSocket stranger(setup.server->address());
  std::string bytes = enter();
  for (uint32_t i = 2; i < 600; ++i) bytes += ping(i);
  stranger.send(bytes);
  BOOST_TEST(stranger.closed_by_peer());
  setup.check_healthy();
}

BOOST_AUTO_TEST_CASE(resets_before_and_after_accept_do_not_stop_the_listener) {
  Setup setup;
  for (int i = 0; i < 200; ++i) {
    RawSocket stranger(setup.server->address());
    if (i % 2 == 0) stranger.send(enter());
    stranger.reset();
  }
  BOOST_TEST(Client::connect({setup.server->address()}).ok());
  setup.check_healthy();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe::test

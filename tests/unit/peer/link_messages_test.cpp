#include "transport/peer/link_messages.h"

#include <boost/test/unit_test.hpp>

namespace troupe {
namespace {

PeerHello sound() {
  return {.protocol_min = 1,
          .protocol_max = 3,
          .cluster_id = "c",
          .node = "node-2/stage-1",
          .incarnation = {9},
          .listen = "127.0.0.1:7420"};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(peer_link_messages)

BOOST_AUTO_TEST_CASE(a_hello_comes_back_as_it_was) {
  const auto bytes = encode_hello({sound(), 123});
  BOOST_REQUIRE(bytes.ok());
  const auto back = decode_hello(bytes.value().view());
  BOOST_REQUIRE(back.ok());
  BOOST_TEST(back.value().token == 123U);
  const PeerHello& peer = back.value().peer;
  BOOST_TEST(peer.protocol_min == 1U);
  BOOST_TEST(peer.protocol_max == 3U);
  BOOST_TEST(peer.cluster_id == "c");
  BOOST_TEST(peer.node == "node-2/stage-1");
  BOOST_TEST(peer.incarnation.value == 9U);
  BOOST_TEST(peer.listen == "127.0.0.1:7420");
}

BOOST_AUTO_TEST_CASE(hellos_outside_the_limits_are_refused) {
  const std::pair<const char*, void (*)(PeerHello&)> cases[] = {
      {"no cluster", [](PeerHello& hello) { hello.cluster_id.clear(); }},
      {"long cluster", [](PeerHello& hello) { hello.cluster_id.assign(129, 'c'); }},
      {"control character", [](PeerHello& hello) { hello.cluster_id = std::string("a\nb"); }},
      {"broken utf-8", [](PeerHello& hello) { hello.cluster_id = std::string("\xC3"); }},
      {"no node", [](PeerHello& hello) { hello.node.clear(); }},
      {"long node", [](PeerHello& hello) { hello.node.assign(65, 'n'); }},
      {"space in node", [](PeerHello& hello) { hello.node = std::string("node 1"); }},
      {"no incarnation", [](PeerHello& hello) { hello.incarnation = {}; }},
      {"protocols", [](PeerHello& hello) { hello.protocol_min = 4; }},
      {"long listen", [](PeerHello& hello) { hello.listen.assign(257, '1'); }}};
  for (const auto& [what, spoil] : cases) {
    PeerHello hello = sound();
    spoil(hello);
    BOOST_TEST(!check_hello(hello).ok(), what);
    BOOST_TEST(!encode_hello({hello, 1}).ok(), what);
  }
}

BOOST_AUTO_TEST_CASE(peers_link_when_their_protocols_overlap_and_their_cluster_is_the_same) {
  const PeerHello ours = sound();
  const auto with = [&](auto change) {
    PeerHello theirs = sound();
    theirs.node = std::string("node-3");
    change(theirs);
    return check_compatible(ours, theirs);
  };
  BOOST_TEST(with([](PeerHello&) {}).ok());
  BOOST_TEST(with([](PeerHello& p) { p.protocol_min = 3, p.protocol_max = 8; }).ok());
  BOOST_TEST(!with([](PeerHello& p) { p.protocol_min = 4, p.protocol_max = 8; }).ok());
  BOOST_TEST(!with([](PeerHello& p) { p.protocol_min = p.protocol_max = 0; }).ok());
  BOOST_TEST(!with([](PeerHello& p) { p.cluster_id = std::string("other"); }).ok());
  BOOST_TEST(!with([](PeerHello& p) { p.node = std::string("node-2/stage-1"); }).ok());
  BOOST_TEST(!with([](PeerHello& p) {
                p.node = std::string("node-2/stage-1"), p.incarnation = {10};
              }).ok());
}

BOOST_AUTO_TEST_CASE(a_beat_comes_back_as_it_was_and_is_cut_at_its_limit) {
  Beat beat{.number = 42, .progress = {}};
  for (uint32_t i = 0; i < kBeatProgressMax + 5; ++i)
    beat.progress.push_back({i, i + 100U, i + 99U});
  const auto bytes = encode_beat(beat);
  BOOST_REQUIRE(bytes.ok());
  const auto back = decode_beat(bytes.value().view());
  BOOST_REQUIRE(back.ok());
  BOOST_TEST(back.value().number == 42U);
  BOOST_REQUIRE(back.value().progress.size() == kBeatProgressMax);
  for (uint32_t i = 0; i < kBeatProgressMax; ++i) {
    BOOST_TEST(back.value().progress[i].stage == i);
    BOOST_TEST(back.value().progress[i].started == i + 100U);
    BOOST_TEST(back.value().progress[i].finished == i + 99U);
  }
}

BOOST_AUTO_TEST_CASE(a_goodbye_is_cleaned_and_cut) {
  const auto bytes = encode_goodbye({ErrorCode::kConflict, "why\x01\xFF" + std::string(9000, 'x')});
  BOOST_REQUIRE(bytes.ok());
  const auto back = decode_goodbye(bytes.value().view());
  BOOST_REQUIRE(back.ok());
  BOOST_TEST((back.value().why.code == ErrorCode::kConflict));
  BOOST_TEST(back.value().why.message.size() == kControlTextMax);
  BOOST_TEST(back.value().why.message.substr(0, 6) == "why??x");
}

BOOST_AUTO_TEST_CASE(a_token_of_zero_is_refused) {
  BOOST_TEST(!decode_beat_hello(encode_beat_hello(0).value().view()).ok());
  BOOST_TEST(decode_beat_hello(encode_beat_hello(8).value().view()).value() == 8U);
  BOOST_TEST(!decode_hello(encode_hello({sound(), 0}).value().view()).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe

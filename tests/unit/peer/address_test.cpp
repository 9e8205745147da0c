#include "transport/peer/address.h"

#include <boost/test/unit_test.hpp>

#include "transport/peer/peer_links.h"

namespace troupe {

BOOST_AUTO_TEST_SUITE(peer_address)

BOOST_AUTO_TEST_CASE(loopback_addresses_are_taken_and_written_back) {
  const std::pair<const char*, const char*> cases[] = {{"127.0.0.1:7420", "127.0.0.1:7420"},
                                                       {"127.200.3.4:0", "127.200.3.4:0"},
                                                       {"[::1]:65535", "[::1]:65535"},
                                                       {"localhost:1", "127.0.0.1:1"}};
  for (const auto& [text, back] : cases) {
    const auto parsed = parse_loopback_address(text);
    BOOST_REQUIRE_MESSAGE(parsed.ok(), text);
    BOOST_TEST(address_text(parsed.value()) == back);
  }
}

BOOST_AUTO_TEST_CASE(other_machines_are_refused_because_there_is_no_tls) {
  for (const char* text : {"0.0.0.0:7420", "192.168.1.2:7420", "10.0.0.1:1", "[::]:1",
                           "[2001:db8::1]:7", "[::ffff:127.0.0.1]:7", "128.0.0.1:9"}) {
    const auto parsed = parse_loopback_address(text);
    BOOST_REQUIRE_MESSAGE(!parsed.ok(), text);
    BOOST_TEST((parsed.error().code == ErrorCode::kInvalidArgument));
    BOOST_TEST(parsed.error().message.find("TLS") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_address_is_refused) {
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536",
                           "127.0.0.1:-1", "127.0.0.1:1 ", "::1:7420", "[]:1", "example.com:7420",
                           "127.0.0.1:7420:1", "[::1:7420", "\x01:1"}) {
    const auto parsed = parse_loopback_address(text);
    BOOST_REQUIRE_MESSAGE(!parsed.ok(), text);
    BOOST_TEST((parsed.error().code == ErrorCode::kInvalidArgument));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe

// Addresses that a peer link may use. Without TLS that is this machine only, and the error says so.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "base/result.h"

namespace troupe {

// "127.0.0.1:7420", "[::1]:7420", "localhost:7420". Errors: kInvalidArgument.
Result<boost::asio::ip::tcp::endpoint> parse_loopback_address(const std::string& text);
// The same form back.
std::string address_text(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace troupe
